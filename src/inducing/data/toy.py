"""The toy regression problem of the paper's Section 4.1: a cubic with a gap in the middle."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from jaxtyping import Float
from torch import Tensor

from inducing.data.standardise import Standardiser


class Cubic(NamedTuple):
    """The normalised toy data.

    Arguments:
        x: Normalised inputs.
        y: Normalised targets.
        noise_variance: The true noise variance on the normalised scale.
        inputs: From the original scale of x to the normalised one.
        targets: The same for y.
    """

    x: Float[Tensor, "N 1"]
    y: Float[Tensor, "N 1"]
    noise_variance: float
    inputs: Standardiser
    targets: Standardiser


def cubic(num_data: int = 40, seed: int = 0, noise_std: float = 3.0) -> Cubic:
    """Draw x ~ U([-4, -2] u [2, 4]) and y = x^3 + N(0, noise_std^2), then normalise both.

    Example:
        >>> import inducing
        >>> toy = inducing.data.toy.cubic()
        >>> toy.x.shape
        torch.Size([40, 1])
    """
    random = np.random.default_rng(seed)
    x = random.uniform(2.0, 4.0, (num_data, 1)) * random.choice([-1.0, 1.0], (num_data, 1))
    y = x**3 + noise_std * random.standard_normal((num_data, 1))
    inputs, targets = Standardiser.of(x), Standardiser.of(y)
    return Cubic(inputs.apply(x), targets.apply(y), float((noise_std / targets.std[0]) ** 2), inputs, targets)
