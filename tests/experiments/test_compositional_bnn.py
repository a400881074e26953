from dataclasses import asdict

import pytest
from matplotlib.container import BarContainer

from inducing.experiments.compositional_bnn import draw_variances
from inducing.experiments.paper import published
from inducing.experiments.toy import Config


def test_the_figure_has_a_panel_for_each_posterior_with_means_over_splits():
    results = [
        {
            "config": asdict(Config(posterior=posterior, split=split)),
            "metrics": {"elbo_per_datapoint": -2.0 + split, "layer_variance": [0.1 + split, 0.2, 0.3]},
        }
        for posterior in ("factorised", "global")
        for split in (0, 1)
    ]
    panels = draw_variances(results).axes
    assert [panel.get_title().splitlines()[0] for panel in panels] == ["factorised", "global"]
    assert "ELBO -1.50 ± 0.50" in panels[0].get_title()
    ours, paper = (bars for bars in panels[1].containers if isinstance(bars, BarContainer))
    assert ours.datavalues == pytest.approx([0.6, 0.2, 0.3])
    assert paper.datavalues == pytest.approx(published()["toy_compositional_bnn"]["global"]["layer_variance"])
