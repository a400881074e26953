"""Shape annotations checked at run time, each function once for each combination of shapes.

A checked call costs ten times as much as the small matrices of a test, and training repeats the same shapes in every step.
"""

import dataclasses
import functools
import inspect
from collections import defaultdict

import jaxtyping
import torch

_check_every_call = jaxtyping.jaxtyped
# keyed by code: a function inside another one is made anew in every call, but its annotations stay
_held = defaultdict(set)


def install(*modules):
    """Check the annotations of modules that are imported from now on."""
    jaxtyping.jaxtyped = check_new_shapes
    jaxtyping.install_import_hook(modules, "beartype.beartype")


def check_new_shapes(function=None, *, typechecker):
    """Decorate a function: calls with shapes, dtypes and types that were not seen before are checked by jaxtyping."""
    if function is None:
        return functools.partial(check_new_shapes, typechecker=typechecker)
    if inspect.isclass(function):
        return _check_every_call(function, typechecker=typechecker)
    held = _held[function.__code__]
    # made when it is first needed, since it takes milliseconds
    checked = functools.cache(lambda: _check_every_call(function, typechecker=typechecker))

    @functools.wraps(function)
    def call(*args, **kwargs):
        described = _describe(args), _describe(kwargs)
        if described in held:
            return function(*args, **kwargs)
        result = checked()(*args, **kwargs)
        held.add(described)
        return result

    return call


def _describe(value):
    """Everything about an argument that an annotation can speak of, as something hashable."""
    if isinstance(value, torch.Tensor):
        return value.shape, value.dtype
    if isinstance(value, tuple | list):
        return type(value), *map(_describe, value)
    if isinstance(value, dict):
        return tuple((name, _describe(item)) for name, item in value.items())
    if isinstance(value, int | str | None):
        return type(value), value
    if dataclasses.is_dataclass(value):
        return type(value), _describe(vars(value))
    return type(value)
