"""Exceptions and warnings that users may want to catch.

Invalid arguments raise Python's ValueError and TypeError.
"""

from __future__ import annotations

from typing import Any


class FactorisationError(RuntimeError):
    """A matrix could not be factorised. The message names the layer, the likely causes and the remedies."""


class JitterWarning(UserWarning):
    """A matrix was factorised only after jitter had been added to its diagonal."""


class DivergenceError(RuntimeError):
    """Training or sampling diverged: the objective or its gradient became non-finite.

    After `fit`, the network holds its last finite state.

    Arguments:
        message: The cause and the remedies.
        history: The `History` of training up to the failure, or None if nothing was trained.
    """

    def __init__(self, message: str, history: Any = None) -> None:
        super().__init__(message)
        self.history = history


class DataWarning(UserWarning):
    """The data, or the size of the network for these data, are unusual. Training may be slow or inaccurate."""


class RollBackWarning(UserWarning):
    """A training step was undone and is repeated with a smaller step size."""


class CheckpointError(RuntimeError):
    """A checkpoint folder cannot be used for this run."""


class CheckpointWarning(UserWarning):
    """A checkpoint could not be written, or is damaged."""


class RankError(RuntimeError):
    """The processes of a run lost their connection, or were given different arguments."""


class ConvergenceWarning(UserWarning):
    """The chains of `hmc` have not converged: their draws do not represent the posterior yet."""


class SavedModelError(ValueError):
    """A file is not a saved model that this version can load: truncated, foreign, newer, damaged or tampered with."""
