"""UCI regression with deep Gaussian processes: the paper's appendix "UCI results with deep Gaussian processes".

Nine datasets with the splits of Gal & Ghahramani, depths 2 to 5, and four posteriors for the same model. The paper has three
of them. We add coupled inducing points: they differ from global ones only in what the paper argues for.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor, nn

import inducing
from inducing.experiments.engine import training
from inducing.experiments.uci_tables import uci_experiment
from inducing.nn.posteriors.pseudo_likelihood import PrecisionKind, PseudoLikelihood


@dataclass(frozen=True, kw_only=True)
class Config(training.TrainingConfig):
    """The paper's settings: "UCI results with deep Gaussian processes" and "Additional experimental details".

    ``own_inducing`` is the initial value of local inducing points: "normal" for N(0, 1), as in the paper, or "data" for
    rows of the data, as for the other posteriors. ``precision`` is that of global inducing points: "full", one matrix for a
    layer, as in the paper, or "full_per_output". ``hidden_outputs`` is the initial value of their pseudo-outputs in hidden
    layers: "normal" for N(0, 1), as in the paper, or "mean" for the layer's mean function.
    """

    dataset: str = "boston"
    depth: int = 2
    kernel: str = "squared-exponential"
    own_inducing: str = "normal"
    hidden_log_precision: float = -4.0
    precision: PrecisionKind = "full"
    hidden_outputs: str = "normal"
    recipe: str = "paper:dgp"
    num_steps: int = 20_000


def _network(config: Config, x: Tensor, y: Tensor) -> inducing.Network:
    initial = training.initial_values(config, x, y)
    if config.posterior == "local" and config.own_inducing == "normal":
        initial = {"num_inducing": config.num_inducing, "generator": initial["generator"]}
    posteriors = training.posteriors(config, config.depth - 1, config.hidden_log_precision, config.precision)
    settings = {"kernel": config.kernel, "posterior": posteriors, **initial}
    network = inducing.models.deep_gp(x.shape[1], 1, config.depth, **settings)
    if config.posterior == "global" and config.hidden_outputs == "normal":
        *hidden, _ = (layer.posterior for _, layer in network.layers.bayesian_layers())
        for posterior in hidden:
            assert isinstance(posterior, PseudoLikelihood)
            nn.init.normal_(posterior.pseudo_outputs, generator=initial["generator"])
    return network


NOTE = "`coupled` has no results in the paper. The paper's RMSE on wine, printed as 0.06, is left out."
UCI_DGP = uci_experiment("uci-dgp", Config(), _network, "depth", NOTE)
