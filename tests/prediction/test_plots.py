import numpy as np
from matplotlib.figure import Figure

from inducing.prediction.plots import as_png, plot_interval


def test_the_band_is_where_it_should_be():
    figure = Figure()
    axes = figure.subplots()
    x = np.linspace(0, 1, 5)
    plot_interval(axes, x, 2 * x, np.full(5, 0.5), num_std=2.0)
    vertices = axes.collections[0].get_paths()[0].vertices
    assert vertices[:, 1].min() == -1.0
    assert vertices[:, 1].max() == 3.0
    np.testing.assert_allclose(axes.lines[0].get_ydata(), 2 * x)
    assert as_png(figure).startswith(b"\x89PNG")
