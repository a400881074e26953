"""Parameterisation of precisions, variances and triangular matrices.

Adam changes each parameter by about its learning rate per step, so parameters are stored at a scale of about 1 (the paper's
appendix "Parameter scaling for ADAM"): log-precisions are divided by 3, means of weights are multiplied by sqrt(fan-in).
"""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

LOG_PRECISION_SCALE = 3.0


def lower_triangular(diagonal: Float[Tensor, "G M"], lower: Float[Tensor, "G M M"]) -> Float[Tensor, "G M M"]:
    """Return D (I + N) with N strictly lower triangular. N = 0 gives the diagonal matrix D."""
    identity = torch.eye(diagonal.shape[-1], dtype=diagonal.dtype, device=diagonal.device)
    # a product with a mask costs a third of tril, here and in the backward pass
    below = torch.ones_like(identity).tril_(-1)
    return diagonal[..., None] * (identity + below * lower)
