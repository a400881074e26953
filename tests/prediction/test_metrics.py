import math

import pytest
import torch

import inducing
from inducing.prediction.predictive import Predictive


def test_rmse_is_on_the_original_scale():
    predictive = Predictive(torch.zeros(5, 2, 1), inducing.Gaussian()).unstandardise(10.0, 2.0)
    assert inducing.metrics.rmse(predictive, torch.tensor([[13.0], [6.0]])) == pytest.approx(12.5**0.5)


def test_rmse_does_not_broadcast():
    predictive = Predictive(torch.zeros(5, 2, 1), inducing.Gaussian())
    with pytest.raises(ValueError, match="y must have shape"):
        inducing.metrics.rmse(predictive, torch.zeros(2))


def test_log_likelihood_is_the_mean_over_rows():
    predictive = Predictive(torch.randn(5, 4, 2), inducing.Gaussian(learn_variance=False))
    y = torch.randn(4, 2)
    assert inducing.metrics.log_likelihood(predictive, y) == pytest.approx(predictive.log_prob(y).mean().item())


def test_metrics_are_for_their_likelihoods():
    classes = Predictive(torch.zeros(2, 3, 4), inducing.Categorical())
    numbers = Predictive(torch.zeros(2, 3, 1), inducing.Gaussian())
    with pytest.raises(TypeError, match="Use accuracy"):
        inducing.metrics.rmse(classes, torch.zeros(3).long())
    with pytest.raises(TypeError, match="Use rmse"):
        inducing.metrics.accuracy(numbers, torch.zeros(3, 1))


class Ordinal(inducing.nn.Likelihood):
    """Classes of one's own: an ordered probit with thresholds -1 and 1 for one output."""

    support = "classes"

    def mean(self, outputs):
        below = torch.special.ndtr(torch.tensor([-1.0, 1.0]) - outputs)
        return torch.cat([below, torch.ones_like(outputs)], -1).diff(dim=-1, prepend=torch.zeros_like(outputs))

    def log_prob(self, outputs, y):
        return self.mean(outputs).log()[:, torch.arange(len(y)), y]

    def sample(self, outputs, generator=None):
        return torch.distributions.Categorical(self.mean(outputs)).sample()


def test_classes_of_ones_own():
    predictive = Predictive(torch.tensor([-3.0, 0.0, 3.0]).reshape(1, 3, 1), Ordinal())
    y = torch.tensor([0, 1, 1])
    assert inducing.metrics.accuracy(predictive, y) == pytest.approx(2 / 3)
    assert inducing.metrics.calibration_curve(predictive, y).num_rows.sum() == 3
    assert inducing.metrics.entropy(predictive).shape == (3,)
    assert inducing.metrics.log_likelihood(predictive, y) < 0


def test_accuracy():
    predictive = Predictive(torch.eye(3)[None].expand(2, -1, -1), inducing.Categorical())
    assert inducing.metrics.accuracy(predictive, torch.tensor([0, 1, 1])) == pytest.approx(2 / 3)


def test_accuracy_of_yes_and_no():
    predictive = Predictive(torch.tensor([[2.0, -1.0], [3.0, 1.0]]).expand(2, -1, -1), inducing.Bernoulli())
    for kind in (torch.bool, torch.int64, torch.float32):
        y = torch.tensor([[1, 1], [1, 1]]).to(kind)
        assert inducing.metrics.accuracy(predictive, y) == 0.75
        brier = (1 - torch.sigmoid(torch.tensor([2.0, -1.0, 3.0, 1.0]))).square().mean().item()
        assert inducing.metrics.rmse(predictive, y) == pytest.approx(brier**0.5)


@pytest.mark.parametrize("make", [inducing.Poisson, inducing.NegativeBinomial])
def test_metrics_of_counts(make):
    predictive, y = Predictive(torch.zeros(5, 2, 1), make().requires_grad_(False)), torch.tensor([[3], [0]])
    assert inducing.metrics.rmse(predictive, y) == pytest.approx(2.5**0.5)
    expected = make().log_prob(torch.zeros(1, 2, 1), y).mean().item()
    assert inducing.metrics.log_likelihood(predictive, y) == pytest.approx(expected)
    with pytest.raises(TypeError, match=f"accuracy is for classes, not for a {make.__name__} likelihood"):
        inducing.metrics.accuracy(predictive, y)


def test_metrics_of_noise_that_depends_on_the_inputs():
    predictive = Predictive(torch.zeros(5, 2, 2), inducing.HeteroscedasticGaussian(learn_variance=False)).unstandardise(
        10.0, 2.0
    )
    y = torch.tensor([[13.0], [6.0]])
    same = Predictive(torch.zeros(5, 2, 1), inducing.Gaussian(learn_variance=False)).unstandardise(10.0, 2.0)
    assert inducing.metrics.rmse(predictive, y) == pytest.approx(12.5**0.5)
    assert inducing.metrics.log_likelihood(predictive, y) == pytest.approx(inducing.metrics.log_likelihood(same, y))


def classes(probabilities):
    return Predictive(torch.as_tensor(probabilities).log()[None], inducing.Categorical())


def test_the_calibration_error_of_known_cases():
    # confidence 0.75, right three times of four: perfect
    y = torch.tensor([0, 0, 0, 1])
    assert inducing.metrics.expected_calibration_error(classes([[0.75, 0.25]] * 4), y) == pytest.approx(0.0, abs=1e-6)
    # always sure and always wrong: as bad as can be
    sure = classes([[1 - 1e-7, 1e-7]] * 3)
    assert inducing.metrics.expected_calibration_error(sure, torch.ones(3).long()) == pytest.approx(1.0, abs=1e-5)


def test_a_prediction_that_is_not_a_number_is_not_well_calibrated():
    predictive = Predictive(torch.tensor([[[float("nan"), 0.0], [5.0, 0.0]]]), inducing.Categorical())
    assert math.isnan(inducing.metrics.expected_calibration_error(predictive, torch.zeros(2).long()))


def test_the_calibration_curve_is_that_of_a_loop_over_bins():
    probabilities = torch.distributions.Dirichlet(torch.ones(4)).sample((200,)).double()
    y = torch.randint(4, (200,))
    curve = inducing.metrics.calibration_curve(classes(probabilities), y, num_bins=5)
    confidence, predicted = probabilities.max(1)
    for index in range(5):
        inside = (confidence >= index / 5) & (confidence < (index + 1) / 5)
        assert curve.num_rows[index] == inside.sum()
        if inside.any():
            torch.testing.assert_close(curve.confidence[index], confidence[inside].mean())
            torch.testing.assert_close(curve.accuracy[index], (predicted == y)[inside].double().mean())
        else:
            assert curve.confidence[index].isnan()
    gaps = (curve.confidence - curve.accuracy).abs().nan_to_num() * curve.num_rows / 200
    assert inducing.metrics.expected_calibration_error(classes(probabilities), y, 5) == pytest.approx(float(gaps.sum()))


def test_the_calibration_of_yes_and_no():
    predictive = Predictive(torch.tensor([[[3.0], [-3.0], [-3.0]]]), inducing.Bernoulli())
    y = torch.tensor([[1.0], [0.0], [1.0]])
    assert inducing.metrics.expected_calibration_error(predictive, y) == pytest.approx(
        abs(torch.tensor(3.0).sigmoid() - 2 / 3)
    )


def test_entropy_is_that_of_the_mixture():
    # two draws that are sure of different classes: together they know nothing
    predictive = Predictive(torch.tensor([[[50.0, 0.0]], [[0.0, 50.0]]]), inducing.Categorical())
    torch.testing.assert_close(inducing.metrics.entropy(predictive), torch.tensor([2.0]).log())
    torch.testing.assert_close(inducing.metrics.entropy(classes([[1.0, 0.0]])), torch.zeros(1))


def test_auroc_counts_pairs():
    known, unknown = torch.tensor([0.1, 0.4, 0.4]), torch.tensor([0.4, 0.9])
    # pairs: 0.4 beats 0.1, ties twice; 0.9 beats three
    assert inducing.metrics.auroc(known, unknown) == pytest.approx((1 + 0.5 + 0.5 + 3) / 6)


def test_calibration_is_for_classes():
    predictive = Predictive(torch.zeros(2, 3, 1), inducing.Gaussian())
    for measure in (inducing.metrics.entropy, lambda p: inducing.metrics.calibration_curve(p, torch.zeros(3, 1))):
        with pytest.raises(TypeError, match="one class per row, not for a Gaussian"):
            measure(predictive)
    with pytest.raises(ValueError, match="num_bins must be at least 1"):
        inducing.metrics.calibration_curve(classes([[0.5, 0.5]]), torch.zeros(1).long(), 0)


@pytest.mark.parametrize("likelihood", [inducing.Gaussian([0.3, 0.1]), inducing.HeteroscedasticGaussian(0.3)])
def test_crps_is_the_integral(likelihood):
    """The integral of (F(t) - [y <= t])^2 on a fine grid, on the original scale."""
    torch.manual_seed(0)
    outputs = 4 if isinstance(likelihood, inducing.HeteroscedasticGaussian) else 2
    likelihood = likelihood.double().requires_grad_(False)
    predictive = Predictive(torch.randn(7, 3, outputs).double(), likelihood).unstandardise(1.0, [2.0, 3.0])
    y = torch.randn(3, 2).double()
    grid = torch.linspace(-20, 20, 4001).double()
    cells = []
    for t in grid:
        standardised = ((t - predictive.location) / predictive.scale).expand(3, 2)
        below = likelihood.log_cdf(predictive.outputs, standardised).exp().mean(0)
        cells.append((below - (y <= t).double()).square())
    integral = torch.stack(cells).sum(0) * (grid[1] - grid[0])
    assert inducing.metrics.crps(predictive, y) == pytest.approx(integral.mean().item(), abs=5e-3)


def test_crps_from_samples_is_near_the_exact_one():
    """A Student's t with many degrees of freedom is Gaussian."""
    outputs, y = 0.5 * torch.randn(4000, 2, 1).double(), torch.tensor([[0.3], [-1.0]]).double()
    exact = Predictive(outputs[:400], inducing.Gaussian(0.25).double().requires_grad_(False))
    sampled = Predictive(outputs, inducing.StudentT(0.5, 1e6).double().requires_grad_(False))
    assert inducing.metrics.crps(sampled, y) == pytest.approx(inducing.metrics.crps(exact, y), abs=0.02)


def test_crps_of_a_point_is_the_absolute_error():
    predictive = Predictive(torch.zeros(5, 2, 1), inducing.Gaussian(1e-12)).unstandardise(10.0, 2.0)
    assert inducing.metrics.crps(predictive, torch.tensor([[13.0], [6.0]])) == pytest.approx(3.5, abs=1e-4)


def test_crps_is_not_for_classes_nor_for_one_sample():
    with pytest.raises(TypeError, match="CRPS is not defined"):
        inducing.metrics.crps(Predictive(torch.zeros(2, 3, 4), inducing.Categorical()), torch.zeros(3).long())
    with pytest.raises(ValueError, match="at least two draws"):
        inducing.metrics.crps(Predictive(torch.zeros(1, 3, 1), inducing.Poisson()), torch.zeros(3, 1))


def test_coverage_counts_what_is_inside():
    predictive = Predictive(torch.zeros(5, 4, 1), inducing.Gaussian(1.0)).unstandardise(0.0, 2.0)
    y = torch.tensor([[-4.0], [-3.0], [3.2], [3.4]])  # the 90 % interval is +-3.29
    assert inducing.metrics.coverage(predictive, y, 0.9) == 0.5
    assert inducing.metrics.coverage(predictive, y, 0.99) == 1.0
    with pytest.raises(ValueError, match="level must be between 0 and 1"):
        inducing.metrics.coverage(predictive, y, 90)


def test_coverage_is_that_of_the_noise():
    generator = torch.Generator().manual_seed(0)
    predictive = Predictive(torch.zeros(2, 4000, 1), inducing.Gaussian(1.0))
    y = torch.randn(4000, 1, generator=generator)
    for level in (0.5, 0.9):
        error = (level * (1 - level) / 4000) ** 0.5
        assert abs(inducing.metrics.coverage(predictive, y, level) - level) < 4 * error
