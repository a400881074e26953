"""The classes that a saved file may name, and `register`, which adds your own.

A file holds names of classes and never code. A name is looked up in the tables below, so a file cannot import or run
anything else. A class is matched exactly: a subclass is another class.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from importlib import import_module
from typing import Any, Protocol, TypeVar, runtime_checkable

from torch import Tensor, nn

from inducing.inference.recipes import Recipe
from inducing.nn import Function, Kernel, Layer, Likelihood, Posterior, Prior
from inducing.nn.gp.functions import JointProcess, Process
from inducing.nn.layers import Conv2d, Deterministic, GPLayer, InducingNorm, Linear, Residual
from inducing.nn.layers.linear import ReparameterisedAffine
from inducing.nn.network import Network

Tensors = dict[str, Tensor]
State = tuple[dict[str, Any], Tensors]
C = TypeVar("C", bound=type)


@runtime_checkable
class Savable(Protocol):
    """An estimator: a class with the attributes ``network_`` and ``likelihood_``, which are saved with it."""

    def to_state(self) -> State:
        """Everything except the network and the likelihood: values for JSON, and tensors by name."""

    @classmethod
    def from_state(cls, values: dict[str, Any], tensors: Tensors, network: Network, likelihood: Likelihood) -> Savable:
        """Make the estimator from the result of `to_state`, its network and its likelihood.

        The arguments come from a file and may be inconsistent: raise a ValueError in that case.
        """


@runtime_checkable
class Composite(Protocol):
    """An estimator that is made of other estimators, which are saved with it."""

    def to_parts(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """Values for JSON, and the other estimators by name."""

    @classmethod
    def from_parts(cls, values: dict[str, Any], parts: dict[str, Any]) -> Composite:
        """Make the estimator from the result of `to_parts`.

        The arguments come from a file and may be inconsistent: raise a ValueError in that case.
        """


# kinds and their base classes; a class has the first kind whose base class it derives from
KINDS: dict[str, type | tuple[type, ...]] = {
    "prior": Prior,
    "posterior": Posterior,
    "kernel": Kernel,
    "function": Function,
    "likelihood": Likelihood,
    "module": nn.Module,
    "class": Recipe,
    "object": (Savable, Composite),
}
# registered classes by kind and name
CLASSES: dict[str, dict[str, type]] = {kind: {} for kind in KINDS}
# names that `objects` reads and writes itself; "value" is a plain JSON value
OBJECTS = ("Network", "Likelihood", "FunctionSamples", "Mixture", "Standardiser", "Tensor", "tuple", "dict", "value")
# the arguments of each constructor, and the attributes that hold them
ATTRIBUTES: dict[type, dict[str, str]] = {}
# attributes of a layer that hold its arguments: `layer.prior` is the module built from `layer.prior_spec`
SPECIFICATIONS = {"prior": "prior_spec", "posterior": "posterior_spec", "kernel": "kernel_spec"}
# further modules of torch that a `Deterministic` may contain, and the arguments of their constructors
FROZEN: dict[str, tuple[type[nn.Module], tuple[str, ...]]] = {
    "Linear": (nn.Linear, ("in_features", "out_features", "bias")),
    "Conv2d": (
        nn.Conv2d,
        (
            *("in_channels", "out_channels", "kernel_size", "stride", "padding", "dilation", "groups", "bias"),
            "padding_mode",
        ),
    ),
    "BatchNorm1d": (nn.BatchNorm1d, ("num_features", "eps", "affine", "track_running_stats")),
    "BatchNorm2d": (nn.BatchNorm2d, ("num_features", "eps", "affine", "track_running_stats")),
    "LayerNorm": (nn.LayerNorm, ("normalized_shape", "eps", "elementwise_affine", "bias")),
    "GroupNorm": (nn.GroupNorm, ("num_groups", "num_channels", "eps", "affine")),
    "PReLU": (nn.PReLU, ("num_parameters",)),
    "Dropout": (nn.Dropout, ("p",)),
    "Dropout2d": (nn.Dropout2d, ("p",)),
}
# estimators whose module is imported when a file names them
MODULES: dict[str, str] = {}
# arguments of torch's modules: the first two are refused by `Network`, the others have no effect
NOT_SAVED = ("inplace", "return_indices", "min_value", "max_value", "args", "kwargs")


def register(cls: C) -> C:
    """Allow instances of your own class to be saved and loaded. Use it as a decorator or as a function.

    Its base class determines how it is saved: `Prior`, `Posterior`, `Kernel`, `Likelihood`, a layer or another
    `torch.nn.Module`, the function that a layer draws (`Function`), an estimator (`inducing.saving.Savable`), or
    an estimator that is made of other estimators (`inducing.saving.Composite`).

    A file holds the name of the class and the arguments of its constructor. So each argument must be kept as an attribute of
    the same name, and must be a number, a string, None, a tuple of these, or an instance of a registered class. Fields of a
    dataclass are kept in this way. A layer keeps ``prior`` as ``prior_spec``, and likewise its posterior and its kernel.

    On loading, the arguments are compared with their annotations, and the constructor is called. Then parameters and
    buffers get their saved values; other tensors are not saved. The constructor of a module or layer must not look at the
    values of tensors, since it is called on torch's meta device.

    Import the code that registers the class before loading. A file that names another class is refused; it never imports or
    runs code.

    Arguments:
        cls: The class. Its name must differ from those of other registered classes of its kind.

    Example:
        >>> import inducing, torch
        >>> @inducing.register
        ... class Power(torch.nn.Module):
        ...     def __init__(self, exponent: float) -> None:
        ...         super().__init__()
        ...         self.exponent = exponent
        ...
        ...     def forward(self, x):
        ...         return x.abs() ** self.exponent
        >>> layers = [inducing.Linear(3, 8), Power(1.5), inducing.Linear(8, 1)]
        >>> network = inducing.Network(layers, num_inducing=5)
    """
    kind = kind_of(cls)
    if kind is None:
        raise TypeError(
            f"{cls.__name__} cannot be registered. Derive it from Prior, Posterior, Kernel, Likelihood, Function, Layer or "
            "torch.nn.Module, or define to_state and from_state, or to_parts and from_parts"
        )
    if kind == "object" and cls.__name__ in OBJECTS:
        raise ValueError(f"the name {cls.__name__} is taken; rename the class")
    known = CLASSES[kind].get(cls.__name__, cls)
    if (known.__module__, known.__qualname__) != (cls.__module__, cls.__qualname__):
        raise ValueError(f"the name {cls.__name__} is taken by {known.__module__}.{known.__name__}; rename the class")
    CLASSES[kind][cls.__name__] = cls
    specifications = SPECIFICATIONS if issubclass(cls, Layer) else {}
    names = [] if kind == "object" else _constructor_arguments(cls)
    ATTRIBUTES[cls] = {name: specifications.get(name, name) for name in names}
    return cls


def register_later(module: str, *names: str) -> None:
    """Import a module, which registers its estimators, when a file names one of them."""
    MODULES.update(dict.fromkeys(names, module))


def kind_of(cls: type) -> str | None:
    """The kind of a class, by its base class."""
    return next((kind for kind, base in KINDS.items() if issubclass(cls, base)), None)


def is_registered(value: object) -> bool:
    """Whether exactly the class of a value is registered."""
    kind = kind_of(type(value))
    return kind is not None and CLASSES[kind].get(type(value).__name__) is type(value)


def find_class(kind: str, name: object, where: str) -> Any:
    """Look up a registered class by the name in a file."""
    if kind == "object" and isinstance(name, str) and name in MODULES:
        import_module(MODULES[name])
    if not isinstance(name, str) or name not in CLASSES[kind]:
        raise ValueError(
            f"{where}: there is no {kind} {repr(name)[:80]} that can be loaded. If it is your own class, import its code "
            f"and call inducing.register on the class first. Known: {', '.join(known_names(kind))}"
        )
    return CLASSES[kind][name]


def known_names(kind: str) -> list[str]:
    """The names of a kind that can be loaded."""
    return list(dict.fromkeys([*OBJECTS, *MODULES, *CLASSES[kind]] if kind == "object" else CLASSES[kind]))


def _constructor_arguments(cls: type) -> list[str]:
    # torch.nn.Module declares *args and **kwargs, and takes none
    parameters = {} if cls.__init__ is nn.Module.__init__ else inspect.signature(cls).parameters  # type: ignore[misc]
    not_saved = NOT_SAVED if cls.__module__.startswith("torch.") else ()
    names = [name for name in parameters if name not in not_saved]
    for name in names:
        if parameters[name].kind in (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD):
            raise TypeError(f"{cls.__name__} cannot be registered: its constructor takes *{name}. Name each argument")
    return names


def _concrete_classes(base: Any) -> Iterator[Any]:
    """The classes of the library below a base class, without abstract ones."""
    for cls in base.__subclasses__():
        if not inspect.isabstract(cls):
            yield cls
        yield from _concrete_classes(cls)


for _base in (Prior, Posterior, Kernel, Function, Likelihood):
    for _cls in _concrete_classes(_base):
        # these functions resample and have a generator, which cannot be saved
        if _cls not in (JointProcess, Process, ReparameterisedAffine):
            register(_cls)
for _cls in (
    Recipe,
    *(Linear, Conv2d, GPLayer, InducingNorm, Deterministic),
    # modules of torch without parameters that treat each row by itself
    *(nn.ReLU, nn.ReLU6, nn.LeakyReLU, nn.ELU, nn.CELU, nn.SELU, nn.GELU, nn.SiLU, nn.Mish, nn.Hardswish, nn.Hardtanh),
    *(nn.Tanh, nn.Sigmoid, nn.LogSigmoid, nn.Softplus, nn.Softsign, nn.Identity, nn.Flatten, nn.Unflatten, nn.Upsample),
    *(nn.MaxPool2d, nn.AvgPool2d, nn.AdaptiveAvgPool2d, nn.AdaptiveMaxPool2d, nn.ZeroPad2d),
):
    register(_cls)
# the arguments of these likelihoods are initial values of tensors, and the tensors are saved
ATTRIBUTES |= {cls: {} for cls in CLASSES["likelihood"].values()}
_GEOMETRY = {name: f"geometry.{name}" for name in ("kernel_size", "stride", "padding", "boundary")}
ATTRIBUTES[Conv2d] |= _GEOMETRY | {"out_channels": "out_features"}
# their constructors take *layers, so `values` saves them without `register`
CLASSES["module"] |= {"Residual": Residual, "Sequential": nn.Sequential}
ATTRIBUTES[Residual] = {"layers": "layers", "shortcut": "shortcut"}
