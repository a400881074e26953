"""The published numbers of Ober & Aitchison (2021), as data."""

from __future__ import annotations

import json
from functools import cache
from importlib import resources
from typing import Any

from inducing import experiments

# as the paper calls the priors
PRIORS = {"standard": "StandardPrior", "neal": "NealPrior", "scale": "ScalePrior", "spatial-iw": "SpatialIWPrior"}


@cache
def published() -> dict[str, Any]:
    """The tables of the paper: a mean, or [mean, standard error over splits]; and notes on the numbers, by subject."""
    tables: dict[str, Any] = json.loads((resources.files(experiments) / "paper.json").read_text())
    return tables
