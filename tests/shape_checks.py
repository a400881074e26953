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
# descriptions of frozen dataclasses, numbered
_numbers = {}


def install(*modules):
    """Check the annotations of modules that are imported from now on."""
    jaxtyping.jaxtyped = check_new_shapes
    jaxtyping.install_import_hook(modules, "beartype.beartype")


def check_new_shapes(function=None, *, typechecker):
    """Decorate a function: calls with shapes, dtypes and types that were not seen before are checked by jaxtyping."""
    if function is None:
        return functools.partial(check_new_shapes, typechecker=typechecker)
    if inspect.isclass(function):
        if dataclasses.is_dataclass(function) and "__init__" in vars(function):
            function.__init__ = _check_new(function.__init__, typechecker, set())
        return function
    return _check_new(function, typechecker, _held[function.__code__])


def _check_new(function, typechecker, held):
    """Check calls with arguments that are not yet described in `held`."""
    # an instance has no fields yet
    first = 1 if function.__name__ in ("__init__", "__post_init__") else 0
    # made when it is first needed, since it takes milliseconds
    checked = []

    @functools.wraps(function)
    def call(*args, **kwargs):
        if torch.compiler.is_compiling():
            # shapes are symbols
            return function(*args, **kwargs)
        described = [_describe(value) for value in args[first:]]
        if kwargs:
            described.append(_describe(kwargs))
        described = tuple(described)
        if described in held:
            return function(*args, **kwargs)
        if not checked:
            checked.append(_check_every_call(function, typechecker=typechecker))
        result = checked[0](*args, **kwargs)
        held.add(described)
        return result

    return call


def _describe(value):
    """Everything about an argument that an annotation can speak of, as something hashable."""
    return _describer(type(value))(value)


@functools.cache
def _describer(kind):
    """Return the function that describes values of a type."""
    if issubclass(kind, torch.Tensor):
        return lambda value: (value.shape, value.dtype)
    if issubclass(kind, torch.nn.Module):
        return lambda value: (kind, *[(part.shape, part.dtype) for part in value.parameters()])
    if issubclass(kind, tuple | list):
        return lambda value: (kind, *[_describe(item) for item in value])
    if issubclass(kind, dict):
        return lambda value: tuple([(name, _describe(item)) for name, item in value.items()])
    if issubclass(kind, int | str | None):
        return lambda value: (kind, value)
    if dataclasses.is_dataclass(kind):
        names = [field.name for field in dataclasses.fields(kind)]
        lasting = kind.__dataclass_params__.frozen and kind.__dictoffset__
        return functools.partial(_describe_once if lasting else _describe_fields, names)
    return lambda value: kind


def _describe_fields(names, value):
    return type(value), *[_describe(getattr(value, name)) for name in names]


def _describe_once(names, value):
    """Describe a frozen dataclass by a number, which it keeps: precision matrices are passed on through many functions."""
    number = value.__dict__.get("_description")
    if number is None:
        number = _numbers.setdefault(_describe_fields(names, value), len(_numbers))
        object.__setattr__(value, "_description", number)
    return type(value), number
