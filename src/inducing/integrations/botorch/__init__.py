"""Bayesian optimisation: a BoTorch model around a network and its likelihood.

The model holds S functions drawn once from the posterior. Its posterior at q points is the joint law of these functions'
values, and is differentiable in the points. The same functions are used for all candidates, so acquisition values are
deterministic and can be compared. Thompson sampling draws new functions. New observations, real or fantasised, update the
last layer of each draw exactly given the layers below (`inducing.nn.last_layer`).
"""

import warnings

from inducing.extras import require

with warnings.catch_warnings():
    # packages that BoTorch imports still use torch.jit
    warnings.simplefilter("ignore", DeprecationWarning)
    require("botorch")

from inducing.integrations.botorch.model import NUM_SAMPLES, InducingModel
from inducing.integrations.botorch.paths import FunctionPaths
from inducing.integrations.botorch.posterior import DrawsPosterior

__all__ = ["NUM_SAMPLES", "DrawsPosterior", "FunctionPaths", "InducingModel"]
