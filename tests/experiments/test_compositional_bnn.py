from dataclasses import asdict

import numpy as np
import pytest

from inducing.experiments.compositional_bnn import COMPOSITIONAL_BNN, draw_variances
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
    ours, _, paper = panels[1].containers
    assert ours.datavalues == pytest.approx([0.6, 0.2, 0.3])
    assert np.all(paper.datavalues > 0)


def test_each_split_has_data_and_a_seed_of_its_own():
    assert {config.split for config in COMPOSITIONAL_BNN.configs("paper")} == {0, 1, 2, 3, 4}
