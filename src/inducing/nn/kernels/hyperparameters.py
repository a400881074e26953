"""Learned hyperparameters of a kernel."""

from __future__ import annotations

from torch import Tensor, nn

from inducing.nn.kernels.base import Kernel, Values

# Adam changes all parameters at the same rate, but a kernel should change more slowly than the posterior. Otherwise the
# lengthscales of relevant inputs and the noise grow before the posterior has learned to use the inputs.
LOG_KERNEL_SCALE = 0.7


class KernelModule(nn.Module):
    """The hyperparameters of a kernel, stored as logarithms divided by `LOG_KERNEL_SCALE`."""

    def __init__(self, kernel: Kernel, in_features: int) -> None:
        super().__init__()
        first = kernel.initial_values(in_features)
        self.names = tuple(f"scaled_log_{name}" for name in first)
        for name, value in zip(self.names, first.values(), strict=True):
            self.register_parameter(name, nn.Parameter(value.log() / LOG_KERNEL_SCALE))

    def __getitem__(self, name: str) -> Tensor:
        """Return the value of a hyperparameter by name, e.g. "lengthscale"."""
        values = {known.removeprefix("scaled_log_"): value for known, value in zip(self.names, self(), strict=True)}
        if name not in values:
            raise KeyError(f"unknown hyperparameter {name!r}. Known: {', '.join(values)}")
        return values[name].detach()

    def extra_repr(self) -> str:
        names = (name.removeprefix("scaled_log_") for name in self.names)
        return ", ".join(f"{name}={[round(v, 3) for v in self[name].reshape(-1).tolist()]}" for name in names)

    def forward(self) -> Values:
        """Return the values of the hyperparameters in float64."""
        return tuple((LOG_KERNEL_SCALE * getattr(self, name).double()).exp() for name in self.names)
