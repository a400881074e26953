"""Plots: the numbers that are drawn, on the axes that are given."""

import numpy as np
import pytest
import torch
from matplotlib import pyplot as plt
from matplotlib.figure import Figure

import inducing
from inducing import plots
from inducing.prediction.predictive import Predictive

X = torch.linspace(-1, 1, 7)[:, None]


@pytest.fixture
def ax():
    return Figure().subplots()


def gaussian(num_rows=400, std=1.0):
    """Predictions N(0, 1) and targets N(0, std^2)."""
    likelihood = inducing.Gaussian(1.0)
    y = std * torch.randn(num_rows, 2)
    return Predictive(torch.zeros(1, num_rows, 2), likelihood), y


def heights(collection):
    vertices = collection.get_paths()[0].vertices[:, 1]
    return vertices.min(), vertices.max()


def test_a_band_has_the_given_width(ax):
    x = np.linspace(0, 1, 5)
    returned = plots.plot_band(x, 2 * x, np.full(5, 0.5), draws=np.stack([x, -x]), num_std=2.0, ax=ax)
    assert returned is ax
    assert heights(ax.collections[0]) == (-1.0, 3.0)
    np.testing.assert_allclose(ax.lines[-1].get_ydata(), 2 * x)
    assert len(ax.lines) == 3


def test_predictions_show_the_function_inside_the_noise(ax):
    outputs = torch.linspace(-1, 1, 21)[:, None, None].expand(21, 7, 1)
    predictive = Predictive(outputs, inducing.Gaussian(0.5)).unstandardise(10.0, 2.0)
    plots.plot_predictive(predictive, X.flip(0), data=(X, X), coverage=0.8, ax=ax)
    np.testing.assert_allclose(heights(ax.collections[0]), predictive.quantile([0.1, 0.9])[:, 0, 0].detach(), rtol=1e-6)
    np.testing.assert_allclose(heights(ax.collections[1]), (10 - 2 * 0.8, 10 + 2 * 0.8), rtol=1e-6)
    assert np.all(np.diff(ax.lines[0].get_xdata()) > 0)
    np.testing.assert_allclose(ax.lines[0].get_ydata(), 10, rtol=1e-6)
    np.testing.assert_allclose(ax.lines[1].get_ydata(), X[:, 0])


def test_a_plot_of_predictions_needs_one_input(ax):
    predictive, _ = gaussian(7)
    with pytest.raises(ValueError, match="must be"):
        plots.plot_predictive(predictive, torch.zeros(7, 2), ax=ax)


def test_layers_compose_to_the_network(ax):
    """The first layer is drawn over the inputs, the second over its values, both from the same draws."""
    network = inducing.models.deep_gp(1, 1, num_layers=2, num_inducing=5)
    plots.plot_layer(network, 0, X, num_samples=8, num_draws=3, ax=ax)
    assert len(ax.lines) == 4
    np.testing.assert_allclose(ax.lines[0].get_xdata()[[0, -1]], [-1, 1])
    hidden = np.concatenate([line.get_ydata() for line in ax.lines[:3]])
    above = plots.plot_layer(network, -1, X, num_samples=8, num_draws=3, ax=Figure().subplots())
    assert above.lines[0].get_xdata()[0] < np.quantile(hidden, 0.2)
    assert above.lines[0].get_xdata()[-1] > np.quantile(hidden, 0.8)


def test_an_activation_belongs_to_the_layer_above_it(ax):
    layers = [inducing.Linear(1, 1), torch.nn.ReLU(), inducing.Linear(1, 1, bias=False)]
    network = inducing.Network(layers, inducing_points=X)
    plots.plot_layer(network, 1, X, num_samples=50, num_draws=1, ax=ax)
    x, y = ax.lines[0].get_data()
    assert np.all(y[x < 0] == 0)
    assert np.any(y[x > 0] != 0)


@pytest.mark.parametrize(("layer", "message"), [(1, "20 inputs"), (5, "layer=5")])
def test_a_layer_that_cannot_be_drawn_is_refused(layer, message, ax):
    network = inducing.models.mlp(1, 1, [20], num_inducing=5)
    with pytest.raises(ValueError, match=message):
        plots.plot_layer(network, layer, X, ax=ax)


def test_an_optimal_last_layer_is_drawn_with_its_likelihood(ax):
    layers = [inducing.Linear(1, 1), inducing.Linear(1, 1, posterior=inducing.OptimalInducing())]
    network = inducing.Network(layers, inducing_points=X, inducing_targets=X, learn_inducing_locations=False)
    plots.plot_layer(network, -1, X, num_samples=5, num_draws=2, likelihood=inducing.Gaussian(), ax=ax)
    assert len(ax.lines) == 3


def test_layers_inside_residual_blocks_are_not_counted(ax):
    layers = [inducing.Linear(1, 1), inducing.Residual(inducing.Linear(1, 1)), inducing.Linear(1, 2)]
    network = inducing.Network(layers, inducing_points=X)
    plots.plot_layer(network, 1, X, output=1, num_samples=5, num_draws=2, ax=ax)
    with pytest.raises(ValueError, match="2 Bayesian layers"):
        plots.plot_layer(network, 2, X, ax=ax)


def test_history_shows_the_terms_of_the_elbo(ax):
    network, likelihood = inducing.models.mlp(1, 1, [5], num_inducing=5, prior="scale"), inducing.Gaussian()
    history = inducing.fit(network, likelihood, (X, X), num_steps=4, progress=False)
    plots.plot_history(history, ax=ax)
    elbo, log_likelihood, kl = (line.get_ydata() for line in ax.lines)
    np.testing.assert_allclose(elbo, log_likelihood - kl, rtol=1e-4, atol=1e-4)
    assert [text.get_text() for text in ax.get_legend().get_texts()] == ["ELBO", "log-likelihood", "KL"]
    assert len(plots.plot_history(history, terms=False, ax=Figure().subplots()).lines) == 1


def test_calibration_is_the_coverage_of_intervals(ax):
    predictive, y = gaussian()
    plots.plot_calibration(predictive, y, output=1, levels=[0.5, 0.9], ax=ax)
    expected = [
        inducing.metrics.coverage(Predictive(predictive.outputs[..., 1:], predictive.likelihood), y[:, 1:], p)
        for p in (0.5, 0.9)
    ]
    np.testing.assert_allclose(ax.lines[-1].get_ydata(), expected)


def test_intervals_that_are_too_narrow_are_below_the_diagonal(ax):
    predictive, y = gaussian(std=3.0)
    levels, observed = plots.plot_calibration(predictive, y, ax=ax).lines[-1].get_data()
    assert np.all(observed < levels)


def test_reliability_is_accuracy_by_confidence(ax):
    logits = torch.tensor([[2.0, 0.0], [2.0, 0.0], [0.0, 0.0], [0.0, 1.0]])[None]
    predictive, y = Predictive(logits, inducing.Categorical()), torch.tensor([0, 1, 0, 1])
    plots.plot_reliability(predictive, y, num_bins=4, ax=ax)
    curve = inducing.metrics.calibration_curve(predictive, y, 4)
    filled = curve.num_rows > 0
    np.testing.assert_allclose(ax.lines[1].get_data(), [curve.confidence[filled], curve.accuracy[filled]])
    assert ax.get_title().startswith("ECE 0.")
    error = inducing.metrics.expected_calibration_error(predictive, y)
    assert plots.plot_reliability(predictive, y, ax=Figure().subplots()).get_title() == f"ECE {error:.3f}"
    with pytest.raises(TypeError, match="plot_reliability"):
        plots.plot_calibration(predictive, y, ax=ax)


def test_predicted_and_residuals_show_every_row(ax):
    predictive, y = gaussian(30, std=2.0)
    plots.plot_predicted(predictive, y, output=1, ax=ax)
    np.testing.assert_allclose(ax.lines[0].get_data(), [y[:, 1], torch.zeros(30)])
    residuals = plots.plot_residuals(predictive, y, ax=Figure().subplots()).lines[-1]
    np.testing.assert_allclose(residuals.get_ydata(), y[:, 0])


def test_missing_targets_are_not_shown(ax):
    predictive, y = gaussian(40)
    y[::3, 1] = torch.nan
    plots.plot_calibration(predictive, y, output=1, levels=[0.5], ax=ax)
    known = ~y[:, 1].isnan()
    expected = plots.plot_calibration(
        Predictive(predictive.outputs[:, known], predictive.likelihood), y[known], output=1, levels=[0.5]
    )
    np.testing.assert_allclose(ax.lines[-1].get_ydata(), expected.lines[-1].get_ydata())
    diagonal = plots.plot_predicted(predictive, y, output=1, ax=Figure().subplots()).lines[-1]
    assert np.isfinite(diagonal.get_data()).all()
    plt.close("all")


def test_without_axes_there_is_a_new_figure():
    before = plt.get_fignums()
    first, second = (plots.plot_band([0, 1], [0, 1], [1, 1]) for _ in range(2))
    assert first.figure is not second.figure
    plt.close(first.figure)
    plt.close(second.figure)
    assert plt.get_fignums() == before
