"""The hyperparameters of a kernel, as a layer learns them."""

from __future__ import annotations

from torch import Tensor, nn

from inducing.nn.kernels.base import Kernel, Values

# Adam moves all parameters alike, but a kernel should move more slowly than the posterior that it is fitted to: otherwise
# inputs that matter are switched off, and the noise grows, before the posterior has had time to use them
LOG_KERNEL_SCALE = 0.7


class KernelModule(nn.Module):
    """The hyperparameters of a kernel, stored as logarithms divided by `LOG_KERNEL_SCALE`."""

    def __init__(self, kernel: Kernel, in_features: int) -> None:
        super().__init__()
        first = kernel.first_values(in_features)
        self.names = tuple(f"scaled_log_{name}" for name in first)
        for name, value in zip(self.names, first.values(), strict=True):
            self.register_parameter(name, nn.Parameter(value.log() / LOG_KERNEL_SCALE))

    def __getitem__(self, name: str) -> Tensor:
        """The value of a hyperparameter by name, e.g. "lengthscale"."""
        values = {known.removeprefix("scaled_log_"): value for known, value in zip(self.names, self(), strict=True)}
        if name not in values:
            raise KeyError(f"no hyperparameter {name!r}; there are {', '.join(values)}")
        return values[name].detach()

    def extra_repr(self) -> str:
        names = (name.removeprefix("scaled_log_") for name in self.names)
        return ", ".join(f"{name}={[round(v, 3) for v in self[name].reshape(-1).tolist()]}" for name in names)

    def forward(self) -> Values:
        """Evaluate the hyperparameters, in float64."""
        return tuple((LOG_KERNEL_SCALE * getattr(self, name).double()).exp() for name in self.names)
