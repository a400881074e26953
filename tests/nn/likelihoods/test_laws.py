"""Laws that hold for every likelihood."""

import copy
from typing import NamedTuple

import numpy as np
import pytest
import torch

import inducing
from inducing.nn.likelihoods import Likelihood
from inducing.nn.likelihoods.heteroscedastic import Heteroscedastic

S, B = 4, 6


class Case(NamedTuple):
    make: type
    arguments: dict
    num_outputs: int
    targets: str

    def likelihood(self):
        return self.make(**self.arguments)

    def y(self):
        generator = torch.Generator().manual_seed(1)
        if self.targets == "labels":
            return torch.arange(B) % 3
        if self.targets == "real":
            return torch.randn(B, 2, generator=generator)
        return torch.randint(0, 2 if self.targets == "binary" else 8, (B, 2), generator=generator).float()


CASES = [
    Case(inducing.Gaussian, {"variance": [0.3, 0.5]}, 2, "real"),
    Case(inducing.Categorical, {}, 3, "labels"),
    Case(inducing.Bernoulli, {}, 2, "binary"),
    Case(inducing.Poisson, {}, 2, "counts"),
    Case(inducing.NegativeBinomial, {"concentration": [0.8, 5.0]}, 2, "counts"),
    Case(inducing.StudentT, {"scale": [0.5, 1.0], "degrees_of_freedom": 12.0}, 2, "real"),
    Case(inducing.HeteroscedasticGaussian, {"variance": [0.3, 0.5]}, 4, "real"),
    Case(inducing.HeteroscedasticStudentT, {"variance": [0.3, 0.5], "degrees_of_freedom": 12.0}, 4, "real"),
]
table = pytest.mark.parametrize("case", CASES, ids=lambda case: case.make.__name__)
ordered = pytest.mark.parametrize("case", [c for c in CASES if c.targets != "labels"], ids=lambda c: c.make.__name__)


def outputs(case, dtype=torch.float32):
    return torch.randn(S, B, case.num_outputs, generator=torch.Generator().manual_seed(2)).to(dtype)


def test_the_table_is_complete():
    found = {*Likelihood.__subclasses__(), *Heteroscedastic.__subclasses__()} - {Heteroscedastic}
    assert {case.make for case in CASES} == {each for each in found if each.__module__.startswith("inducing.nn.")}


@table
def test_the_same_methods_in_the_same_order(case):
    wanted = [
        "check_targets", "log_prob", "expected_log_prob", "mean", "variance", "sample", "log_cdf", "log_survival", "icdf"
    ]  # fmt: skip
    classes = case.make.__mro__[: case.make.__mro__.index(Likelihood)]
    for cls in classes:
        order = [wanted.index(name) for name in vars(cls) if name in wanted]
        assert order == sorted(order)
    # the defaults by sampling are for likelihoods of users
    formulas = {name for cls in classes for name in vars(cls)}
    exempt = {"expected_log_prob"} | (
        {"variance", "log_cdf", "log_survival", "icdf"} if case.make.support == "classes" else set()
    )
    assert set(wanted) - exempt <= formulas


@table
def test_shapes(case):
    likelihood, f, y = case.likelihood(), outputs(case), case.y()
    assert torch.equal(likelihood.check_targets(y, (case.num_outputs,)), y)
    assert likelihood.log_prob(f, y).shape == (S, B)
    assert likelihood.mean(f).shape == likelihood.variance(f).shape == (S, B, 3 if case.targets == "labels" else 2)
    assert likelihood.sample(f).shape == (S, *y.shape)


@table
def test_rows_and_samples_are_independent(case):
    likelihood, f, y = case.likelihood(), outputs(case), case.y()
    whole = likelihood.log_prob(f, y)
    torch.testing.assert_close(likelihood.log_prob(f[:, 2:5], y[2:5]), whole[:, 2:5])
    torch.testing.assert_close(likelihood.log_prob(f[1:3], y), whole[1:3])


@table
def test_every_parameter_gets_a_gradient(case):
    likelihood, f = case.likelihood(), outputs(case).requires_grad_()
    likelihood.log_prob(f, case.y()).sum().backward()
    assert (f.grad != 0).all()
    for name, parameter in likelihood.named_parameters():
        assert (parameter.grad != 0).all(), name


@table
def test_gradients_are_right(case):
    likelihood, y = case.likelihood().double(), case.y()
    y = y if case.targets == "labels" else y.double()
    f = outputs(case, torch.float64).requires_grad_()
    assert torch.autograd.gradcheck(lambda f, *_: likelihood.log_prob(f, y), (f, *likelihood.parameters()))


@table
def test_dtypes_move(case):
    likelihood, f, y = case.likelihood(), outputs(case), case.y()
    single = likelihood.log_prob(f, y)
    likelihood.double()
    double = likelihood.log_prob(f.double(), y if case.targets == "labels" else y.double())
    assert (single.dtype, double.dtype) == (torch.float32, torch.float64)
    torch.testing.assert_close(single.double(), double, rtol=1e-5, atol=1e-5)
    assert likelihood.mean(f.double()).dtype == likelihood.variance(f.double()).dtype == torch.float64
    if case.targets != "labels":
        assert likelihood.sample(f.double()).dtype == likelihood.icdf(f.double(), 0.3).dtype == torch.float64
        assert likelihood.log_cdf(f.double(), y.double()).dtype == torch.float64


@table
def test_state_dict_round_trip(case):
    likelihood = case.likelihood()
    with torch.no_grad():
        for parameter in likelihood.parameters():
            parameter.add_(0.1)
    again = case.likelihood()
    again.load_state_dict(likelihood.state_dict())
    assert torch.equal(again.log_prob(outputs(case), case.y()), likelihood.log_prob(outputs(case), case.y()))
    assert repr(again) == repr(likelihood)


@table
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_extreme_outputs_stay_finite(case, dtype):
    """Every combination of outputs from -10^4 to 10^4: densities, gradients, moments and samples are numbers."""
    values = torch.tensor([-1e4, -90.0, 0.0, 90.0, 1e4], dtype=dtype)
    f = torch.cartesian_prod(*[values] * case.num_outputs)[:, None].requires_grad_()
    likelihood, y = case.likelihood().to(dtype), case.y()[:1]
    y = y if case.targets == "labels" else y.to(dtype)
    log_prob = likelihood.log_prob(f, y)
    gradients = torch.autograd.grad(log_prob.sum(), [f, *likelihood.parameters()])
    for value in (log_prob, *gradients, likelihood.mean(f), likelihood.variance(f), likelihood.sample(f)):
        assert torch.isfinite(value).all()
    if case.targets != "labels":
        assert not likelihood.log_cdf(f, y).isnan().any()
        assert not likelihood.log_survival(f, y).isnan().any()
        assert torch.isfinite(likelihood.icdf(f, 0.9)).all()


@table
def test_samples_have_the_mean_and_the_variance(case):
    likelihood, number = case.likelihood(), 20_000
    f = outputs(case)[:1, :2]
    drawn = likelihood.sample(f.expand(number, -1, -1), torch.Generator().manual_seed(0)).detach()
    drawn = torch.nn.functional.one_hot(drawn, 3).float() if case.targets == "labels" else drawn
    mean, variance = likelihood.mean(f)[0].detach(), likelihood.variance(f)[0].detach()
    z = (drawn.mean(0) - mean) / (variance / number).sqrt()
    assert (z.abs() < 4).all()
    squares = (drawn - mean).square()
    z = (squares.mean(0) - variance) / (squares.std(0) / number**0.5)
    assert (z.abs() < 4).all()


@table
def test_the_generator_decides_the_samples(case):
    likelihood, f = case.likelihood(), outputs(case)
    first, again, other = (likelihood.sample(f, torch.Generator().manual_seed(seed)) for seed in (0, 0, 1))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


@ordered
def test_tails_add_up_to_one(case):
    likelihood, f, y = case.likelihood().double(), outputs(case, torch.float64), case.y().double()
    total = likelihood.log_cdf(f, y).exp() + likelihood.log_survival(f, y).exp()
    torch.testing.assert_close(total, torch.ones(S, B, 2).double())


@ordered
@pytest.mark.parametrize("level", [0.02, 0.5, 0.97])
def test_quantiles_invert_the_distribution_function(case, level):
    likelihood, f = case.likelihood().double(), outputs(case, torch.float64)
    at = likelihood.icdf(f, level)
    assert at.shape == (S, B, 2)
    below = likelihood.log_cdf(f, at).exp()
    if likelihood.support == "real":
        torch.testing.assert_close(below, torch.full((S, B, 2), level).double())
    else:
        assert (below >= level).all()
        assert (likelihood.log_cdf(f, at - 1).exp() < level).all()


def quadrature(likelihood, mean, variance, y, num_outputs):
    """E log p(y | f) by Gauss-Hermite quadrature on a grid over all outputs of a row."""
    points, weights = (torch.as_tensor(v) for v in np.polynomial.hermite_e.hermegauss(30))
    weights = weights / weights.sum()
    grid = torch.cartesian_prod(*[points] * num_outputs).reshape(-1, 1, num_outputs)
    weight = torch.cartesian_prod(*[weights] * num_outputs).reshape(-1, num_outputs).prod(-1)
    rows = []
    for sample in range(len(mean)):
        f = mean[sample] + variance.expand(mean.shape)[sample].sqrt() * grid
        rows.append((weight[:, None] * likelihood.log_prob(f, y)).sum(0))
    return torch.stack(rows)


@table
def test_expected_log_prob_is_that_of_quadrature(case):
    likelihood, y = case.likelihood().double(), case.y()
    y = y if case.targets == "labels" else y.double()
    mean, variance = outputs(case, torch.float64), 0.1 + torch.rand(S, B, case.num_outputs).double()
    expected = likelihood.expected_log_prob(mean, variance, y)
    if case.make not in (inducing.Gaussian, inducing.Poisson, inducing.HeteroscedasticGaussian):
        assert expected is None
        return
    # outputs that belong to one target, one target at a time: a grid over all four would be large
    exact = torch.zeros(S, B).double()
    for target in range(2):
        one = copy.deepcopy(likelihood)
        for parameter in one.parameters():
            parameter.data = parameter.data[target]
        columns = [target, target + 2][: case.num_outputs // 2]
        exact += quadrature(one, mean[..., columns], variance[..., columns], y[:, [target]], len(columns))
    # the noise that depends on the inputs is a mean by quadrature itself
    tolerance = 1e-5 if case.make is inducing.HeteroscedasticGaussian else 1e-9
    torch.testing.assert_close(expected, exact, rtol=tolerance, atol=tolerance)
    # the variance may broadcast; without any it is the density itself
    shared = variance[:1, :1]
    torch.testing.assert_close(
        likelihood.expected_log_prob(mean, shared, y), likelihood.expected_log_prob(mean, shared.expand(mean.shape), y)
    )
    nothing = torch.zeros(()).double()
    torch.testing.assert_close(likelihood.expected_log_prob(mean, nothing, y), likelihood.log_prob(mean, y))


@pytest.mark.parametrize("make", [inducing.Gaussian, inducing.Poisson, inducing.HeteroscedasticGaussian])
def test_expected_log_prob_stays_finite(make):
    mean = torch.tensor([-1e4, 0.0, 1e4])[:, None, None].expand(3, 1, 2).clone().requires_grad_()
    y = torch.ones(1, 1 if make is inducing.HeteroscedasticGaussian else 2)
    expected = make().expected_log_prob(mean, torch.tensor(100.0), y)
    (gradient,) = torch.autograd.grad(expected.sum(), mean)
    assert torch.isfinite(expected).all()
    assert torch.isfinite(gradient).all()


@table
def test_nothing_broadcasts(case):
    y = case.y()
    if case.targets == "labels":
        with pytest.raises(ValueError, match="one label per row"):
            case.likelihood().check_targets(y[:, None], (3,))
        return
    with pytest.raises(ValueError, match=r"y must have shape \(6, 2\) like the outputs, got \(6, 1\)"):
        case.likelihood().log_prob(outputs(case), y[:, :1])


def test_labels_for_gaussian_noise_get_a_hint():
    with pytest.raises(ValueError, match=r"shape \(B, 10\), got \(3,\).*Categorical"):
        inducing.Gaussian().check_targets(torch.tensor([0, 9, 2]), (10,))
