import pytest
import torch
from torch import nn
from torch.nn import functional

import inducing
from inducing.linalg import regression
from inducing.linalg.convolution.geometry import Geometry
from inducing.linalg.convolution.patches import patches
from tests.oracles import linear_regression as oracle


def test_a_drawn_convolution_is_that_of_torch():
    x = torch.randn(4, 2, 7, 6)
    network = inducing.Network(
        [inducing.Conv2d(2, 3, (3, 5), stride=(2, 1), padding=(1, 2), posterior="factorised")], input_shape=(2, 7, 6)
    )
    draw = network.draw(5)
    weights = draw.function.steps[0].weights
    for sample, outputs in zip(weights, draw(x), strict=True):
        kernel = sample[:-1].mT.reshape(3, 2, 3, 5)
        expected = functional.conv2d(x, kernel, sample[-1], stride=(2, 1), padding=(1, 2))
        torch.testing.assert_close(outputs, expected)
    # the same maps for all samples, or maps of their own
    torch.testing.assert_close(draw.function(x[None].expand(5, -1, -1, -1, -1)), draw(x))


@pytest.mark.parametrize("size", [(6, 5), (2, 2)], ids=["primal", "dual"])
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("precision", ["shared", "per_output"])
@pytest.mark.parametrize(("kernel", "stride", "padding"), [(3, 1, 1), (3, 2, 1), (1, 1, 0), (2, 1, 0)])
def test_every_elbo_sample_equals_the_evidence(kernel, stride, padding, precision, bias, size):
    """Inducing images = data, pseudo-outputs = the target maps, Lambda = the noise precision, exact boundaries."""
    channels, noise = 3, torch.tensor(0.3, dtype=torch.float64)
    x = torch.randn(2, channels, *size, dtype=torch.float64)
    layer = inducing.Conv2d(
        channels, 2, kernel, stride, padding, posterior=inducing.GlobalInducing(precision), boundary="exact", bias=bias
    )
    network = inducing.Network([layer], inducing_points=x)
    y = torch.randn(2, *network.output_shape, dtype=torch.float64)
    likelihood = inducing.Gaussian(0.3, learn_variance=False).double()
    with torch.no_grad():
        likelihood.scaled_log_variance.copy_(noise.log() / 10)
        layer.posterior.pseudo_outputs.copy_(y)
        layer.posterior.scaled_log_precision.fill_((-noise.log() / 3).item())
    samples = inducing.ELBO(network, likelihood, num_data=2)(x, y, num_samples=20).samples
    design = patches(x[None], Geometry((kernel, kernel), (stride, stride), (padding, padding), "exact"))[0].flatten(
        0, 2
    )
    design = functional.pad(design, (0, 1), value=1.0) if bias else design
    targets = y.permute(0, 2, 3, 1).reshape(-1, 2)
    prior = design.shape[1] * torch.eye(design.shape[1], dtype=torch.float64)
    evidence = oracle.log_evidence(design, targets, prior, 0.3)
    torch.testing.assert_close(samples, evidence.expand(20), rtol=1e-8, atol=1e-8)


def test_it_composes_with_pooling_residuals_and_flattening():
    x = torch.randn(6, 1, 8, 8)
    layers = [
        inducing.Conv2d(1, 4, 3, padding=1),
        inducing.Residual(nn.ReLU(), inducing.Conv2d(4, 4, 3, padding=1)),
        nn.MaxPool2d(2),
        inducing.Conv2d(4, 5, 3, stride=2, padding=1),
        nn.Flatten(),
        inducing.Linear(20, 3),
    ]
    network = inducing.Network(layers, inducing_points=x, inducing_targets=torch.arange(6) % 3)
    history = inducing.fit(network, inducing.Categorical(), (x, torch.arange(6) % 3), num_steps=60, progress=False)
    assert history[-1].elbo > history[0].elbo
    assert network.sample_functions(2)(x).shape == (2, 6, 3)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: inducing.Conv2d(0, 1, 3), "must be at least 1"),
        (lambda: inducing.Conv2d(1, 1, 3, stride=0), "kernel_size and stride must be at least 1"),
        (lambda: inducing.Conv2d(1, 1, 3, boundary="zero"), "boundary must be one of"),
        (lambda: inducing.Conv2d(1, 1, 2), "odd size"),
        (
            lambda: inducing.Conv2d(1, 1, 3, posterior=inducing.Factorised(local_reparameterisation=True)),
            "Use Factorised",
        ),
        (
            lambda: inducing.Network([inducing.Conv2d(1, 1, 3)], inducing_points=torch.randn(4, 2, 5, 5)),
            "expected maps",
        ),
        (
            lambda: inducing.Network([inducing.Conv2d(1, 1, 7)], inducing_points=torch.randn(4, 1, 5, 5)),
            "does not fit into 5 x 5 pixels",
        ),
        (
            lambda: inducing.Network(
                [inducing.Conv2d(1, 1, 3, posterior=inducing.GlobalInducing("full"))],
                inducing_points=torch.randn(4, 1, 5, 5),
            ),
            "precision per inducing image",
        ),
        (
            lambda: inducing.Network(
                [inducing.Conv2d(1, 2, 5)], inducing_points=torch.randn(4, 1, 5, 5), inducing_targets=torch.randn(4, 2)
            ),
            "Leave them out",
        ),
        (
            lambda: inducing.Network([inducing.Conv2d(1, 1, 3, posterior="dsvi")], input_shape=(1, 5, 5)),
            "not over weights",
        ),
    ],
)
def test_bad_input_is_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()


@pytest.mark.parametrize(
    "seeds", [range(3), pytest.param(range(3, 200), marks=pytest.mark.slow)], ids=["few seeds", "many seeds"]
)
@pytest.mark.parametrize("boundary", ["circular", "exact"])
@pytest.mark.parametrize(
    ("scale", "offset"), [(0.1, 10.0), (0.0, 10.0), (1.0, 0.0)], ids=["offset", "constant", "smooth"]
)
@pytest.mark.parametrize("kl", ["sample", "closed_form"])
def test_the_kl_keeps_its_digits_in_float32(boundary, scale, offset, seeds, kl, monkeypatch):
    """Patches of smooth images are nearly alike; their Gram matrix in float32 has lost what tells them apart."""
    # the same noise in both dtypes
    noise = torch.randn(1, 1, 28, 8, generator=torch.Generator().manual_seed(0))
    monkeypatch.setattr(regression, "standard_normal", lambda shape, like, generator: noise.view(shape).to(like))
    for seed in seeds:
        torch.manual_seed(seed)
        coarse = torch.randn(20, 3, 4, 4, dtype=torch.float64)
        smooth = functional.interpolate(coarse, size=(24, 24), mode="bicubic")
        x = scale * smooth + offset * coarse[:, :, :1, :1]
        posterior = inducing.GlobalInducing(log_precision=4.0, kl=kl)
        layer = inducing.Conv2d(3, 8, 3, padding=1, posterior=posterior, boundary=boundary)
        network = inducing.Network([layer], inducing_points=x.float())
        found = {}
        for dtype in (torch.float32, torch.float64):
            network.to(dtype).zero_grad()
            sampled = network.draw(1).layers[0].kl.sum()
            sampled.backward()
            found[dtype] = sampled.item(), layer.posterior.pseudo_outputs.grad.double().clone()
        (short, narrow), (exact, wide) = found.values()
        # half of what is promised: a tenth of a nat, and gradients to 1e-3
        assert abs(short - exact) < 0.05
        assert (narrow - wide).norm() < 1e-3 / 2 * wide.norm()
