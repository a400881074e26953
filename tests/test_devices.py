"""No tensor is created on the wrong device: forward and backward of the ELBO on torch's meta device, in float32.

That device has shapes but no numbers, so what looks at numbers (finiteness, labels, pivots, retries with jitter) takes its
form without branches there. torch (2.13) has no rule for the gradient of a Gamma draw on it, and torch 2.6 none for the draw;
the tests supply what is missing, so that priors with Gamma draws (`ScalePrior` and the inverse-Wishart ones) are covered too.
"""

import pytest
import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

import inducing
from inducing.nn.priors import PRIORS

GAMMA_ON_META = {
    "_standard_gamma": lambda concentration, generator=None: torch.empty_like(concentration),
    "_standard_gamma_grad": lambda concentration, sample: torch.empty_like(sample),
}
META, ROWS, SAMPLES = torch.device("meta"), 8, 3


@pytest.fixture(scope="module", autouse=True)
def _gamma_on_meta():
    library = torch.library.Library("aten", "IMPL")
    for name, rule in GAMMA_ON_META.items():
        if not torch._C._dispatch_has_kernel_for_dispatch_key(f"aten::{name}", "Meta"):
            library.impl(name, rule, "Meta")
    yield
    library._destroy()


class Strays(TorchDispatchMode):
    """Collect the operations that make a tensor anywhere but on the meta device.

    Numbers without axes are left out: torch lets them meet tensors of any device.
    """

    def __init__(self):
        super().__init__()
        self.operations, self.strays = 0, set()

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        result = function(*args, **(kwargs or {}))
        self.operations += 1
        tensors = [leaf for leaf in tree_leaves(result) if isinstance(leaf, torch.Tensor) and leaf.ndim > 0]
        self.strays |= {str(function) for tensor in tensors if tensor.device != META}
        return result


def mlp(posterior, prior="neal"):
    return inducing.models.mlp(3, 2, [7, 4], posterior=posterior, prior=prior, num_inducing=5)


def convolutional(posterior, prior="neal", boundary="circular", last=None):
    settings = {"prior": prior, "posterior": posterior, "boundary": boundary}
    layers = [
        inducing.Conv2d(2, 4, 3, padding=1, **settings),
        nn.ReLU(),
        nn.AvgPool2d(2),
        # with boundary="exact" there are fewer patches than features: the dual form
        inducing.Conv2d(4, 3, 3, stride=2, padding=1, **settings),
        nn.Flatten(),
        inducing.Linear(12, 2, prior=prior, posterior=last or posterior),
    ]
    num_inducing = 5 if "global" in (posterior, last) else None
    return inducing.Network(layers, num_inducing=num_inducing, input_shape=(2, 8, 8))


POSTERIORS = {
    "factorised": inducing.Factorised(),
    "factorised, local reparameterisation": inducing.Factorised(local_reparameterisation=True),
    "local": inducing.LocalInducing(6),
    "local, closed-form KL": inducing.LocalInducing(precision="full", kl="closed_form"),
    "global": "global",
    "global, per output": inducing.GlobalInducing("per_output"),
    "global, full": inducing.GlobalInducing("full_per_output", kl="closed_form"),
    "prior->global": "prior->global",
}
CONVOLUTIONS = {"factorised": None, "local": None, "global": None, "prior": "global"}
NETWORKS = {
    **{f"mlp {p}": lambda p=p: mlp(POSTERIORS[p]) for p in POSTERIORS},
    **{f"mlp {p} {q}": lambda p=p, q=q: mlp(p, q) for q in PRIORS for p in ("factorised", "local", "global")},
    **{
        f"conv {p} {q}": lambda p=p, q=q: convolutional(p, q, last=CONVOLUTIONS[p])
        for p in CONVOLUTIONS
        for q in PRIORS
    },
    **{f"conv global {q}, exact": lambda q=q: convolutional("global", q, "exact") for q in PRIORS},
    "resnet8": lambda: inducing.models.resnet8((3, 8, 8), 2, channels=4, normalise=True, num_inducing=5),
    **{
        f"GP {p}": lambda p=p: inducing.models.deep_gp(3, 2, 2, posterior=p, inducing_points=torch.randn(5, 3))
        for p in ("global", "local", "dsvi", "coupled")
    },
}


@pytest.mark.parametrize("name", NETWORKS)
def test_forward_and_backward_stay_on_the_device(name):
    network = NETWORKS[name]().to(META)
    elbo = inducing.ELBO(network, inducing.Gaussian().to(META), num_data=ROWS)
    x, y = torch.randn(ROWS, *network.input_shape, device=META), torch.randn(ROWS, 2, device=META)
    with Strays() as watched:
        terms = elbo(x, y, SAMPLES)
        forward = watched.operations
        (-terms.objective).backward()
    assert not watched.strays
    assert watched.operations > 1.1 * forward, "the backward pass was not watched"
    assert terms.samples.device == META
    assert terms.samples.shape == (SAMPLES,)
    for parameter_name, parameter in elbo.named_parameters():
        assert parameter.grad is not None, parameter_name
        assert parameter.grad.device == META
        assert parameter.grad.dtype == torch.float32


LIKELIHOODS = {
    "categorical": (inducing.Categorical, torch.zeros(ROWS, dtype=torch.long)),
    "bernoulli": (inducing.Bernoulli, torch.ones(ROWS, 2)),
    "poisson": (inducing.Poisson, torch.ones(ROWS, 2)),
    "negative binomial": (inducing.NegativeBinomial, torch.ones(ROWS, 2)),
    "student-t": (inducing.StudentT, torch.ones(ROWS, 2)),
    "heteroscedastic": (inducing.HeteroscedasticGaussian, torch.ones(ROWS, 1)),
    "heteroscedastic-student-t": (inducing.HeteroscedasticStudentT, torch.ones(ROWS, 1)),
}


@pytest.mark.parametrize("name", LIKELIHOODS)
def test_every_likelihood_stays_on_the_device(name):
    likelihood, y = LIKELIHOODS[name]
    elbo = inducing.ELBO(mlp("global"), likelihood(), num_data=ROWS).to(META)
    with Strays() as watched:
        elbo(torch.randn(ROWS, 3, device=META), y.to(META), SAMPLES).objective.backward()
    assert not watched.strays


def test_a_tensor_on_the_wrong_device_is_noticed():
    class Noise(nn.Module):
        def forward(self, x):
            return x + torch.zeros(7).to(x.device)

    network = inducing.Network([inducing.Linear(3, 7), Noise(), inducing.Linear(7, 1)], num_inducing=5).to(META)
    with Strays() as watched:
        network(torch.randn(ROWS, 3, device=META), SAMPLES)
    assert watched.strays == {"aten.zeros.default"}


def test_noise_of_the_cpu_is_moved():
    """A generator decides where noise is drawn; it then goes to where the network is."""
    network = mlp("global").to(META)
    draw = network.draw(SAMPLES, torch.Generator().manual_seed(0))
    assert draw(torch.randn(ROWS, 3, device=META)).device == META
