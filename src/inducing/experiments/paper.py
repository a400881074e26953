"""The published numbers of Ober & Aitchison (2021), as data."""

from __future__ import annotations

import json
from functools import cache
from importlib import resources
from typing import Any

# as the paper calls the priors
PRIORS = {"standard": "StandardPrior", "neal": "NealPrior", "scale": "ScalePrior", "spatial-iw": "SpatialIWPrior"}


@cache
def published() -> dict[str, Any]:
    """The tables of the paper: means, with standard errors over splits where the paper has them."""
    text = resources.files("inducing.experiments").joinpath("paper.json").read_text()
    tables: dict[str, Any] = json.loads(text)
    return tables
