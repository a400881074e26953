"""Layers, residual blocks and plain modules as JSON, from a list of those that are allowed.

    nn.LeakyReLU(0.1)   <->   {"module": "LeakyReLU", "arguments": {"negative_slope": 0.1}}

A class is matched exactly: a subclass may do anything, and could not be made without its code.
"""

from __future__ import annotations

from operator import attrgetter
from typing import Any

from torch import nn

from inducing.nn.convolution import Conv2d
from inducing.nn.gp import GPLayer
from inducing.nn.layers import Linear
from inducing.nn.normalisation import InducingNorm
from inducing.nn.structure import Residual
from inducing.saving.specifications import choose, construct, encode_value, hints_of, take


def _same(*names: str) -> dict[str, str]:
    return {name: name for name in names}


# the arguments that make a module again, and the attributes where it keeps them
LAYERS: dict[type[nn.Module], dict[str, str]] = {
    Linear: _same("in_features", "out_features", "bias") | {"prior": "prior_spec", "posterior": "posterior_spec"},
    Conv2d: {
        "in_channels": "in_channels",
        "out_channels": "out_features",
        "kernel_size": "geometry.kernel_size",
        "stride": "geometry.stride",
        "padding": "geometry.padding",
        "prior": "prior_spec",
        "posterior": "posterior_spec",
        "boundary": "geometry.boundary",
        "bias": "bias",
    },
    GPLayer: _same("in_features", "out_features", "mean", "jitter", "num_features")
    | {"kernel": "kernel_spec", "posterior": "posterior_spec"},
    InducingNorm: _same("eps"),
}
# modules that work in place, and pools that return indices, are refused by Network
PLAIN: dict[type[nn.Module], dict[str, str]] = {
    nn.ReLU: {},
    nn.ReLU6: {},
    nn.LeakyReLU: _same("negative_slope"),
    nn.ELU: _same("alpha"),
    nn.CELU: _same("alpha"),
    nn.SELU: {},
    nn.GELU: _same("approximate"),
    nn.SiLU: {},
    nn.Mish: {},
    nn.Hardswish: {},
    nn.Hardtanh: _same("min_val", "max_val"),
    nn.Tanh: {},
    nn.Sigmoid: {},
    nn.LogSigmoid: {},
    nn.Softplus: _same("beta", "threshold"),
    nn.Softsign: {},
    nn.Identity: {},
    nn.Flatten: _same("start_dim", "end_dim"),
    nn.Unflatten: _same("dim", "unflattened_size"),
    nn.MaxPool2d: _same("kernel_size", "stride", "padding", "dilation", "ceil_mode"),
    nn.AvgPool2d: _same("kernel_size", "stride", "padding", "ceil_mode", "count_include_pad", "divisor_override"),
    nn.AdaptiveAvgPool2d: _same("output_size"),
    nn.AdaptiveMaxPool2d: _same("output_size"),
    nn.ZeroPad2d: _same("padding"),
    nn.Upsample: _same("size", "scale_factor", "mode", "align_corners"),
}
MODULES = LAYERS | PLAIN
BY_NAME = {cls.__name__: cls for cls in MODULES}


def encode_module(module: nn.Module, where: str) -> dict[str, Any]:
    """Turn an entry of a network's list into JSON."""
    if type(module) is Residual:
        return {
            "module": "Residual",
            "layers": [encode_module(part, f"{where}.layers.{i}") for i, part in enumerate(module.layers)],
            "shortcut": [encode_module(part, f"{where}.shortcut.{i}") for i, part in enumerate(module.shortcut)],
        }
    if type(module) is nn.Sequential:
        parts = [encode_module(part, f"{where}.{i}") for i, part in enumerate(module)]
        return {"module": "Sequential", "layers": parts}
    if type(module) not in MODULES:
        allowed = ", ".join([*(cls.__name__ for cls in LAYERS), "Residual", *(cls.__name__ for cls in PLAIN)])
        raise ValueError(
            f"{where} is a {type(module).__name__}, which cannot be saved: loading must not need anyone's code. "
            f"What can, as torch.nn and inducing define them: {allowed}, and a Sequential of those"
        )
    attributes = MODULES[type(module)]
    arguments = {
        argument: encode_value(attrgetter(attribute)(module), f"{where}.{argument}")
        for argument, attribute in attributes.items()
    }
    return {"module": type(module).__name__, "arguments": arguments}


def decode_module(node: Any, where: str) -> nn.Module:
    """The inverse of `encode_module`."""
    name = node.get("module") if isinstance(node, dict) else None
    if name == "Residual":
        _, layers, shortcut = take(node, where, module=str, layers=list, shortcut=list)
        if len(shortcut) > 1:
            raise ValueError(f"{where}: a Residual has one shortcut, not {len(shortcut)}")
        parts = [decode_module(part, f"{where}.layers.{i}") for i, part in enumerate(layers)]
        others = [decode_module(part, f"{where}.shortcut.{i}") for i, part in enumerate(shortcut)]
        return Residual(*parts, shortcut=others[0] if others else None)
    if name == "Sequential":
        _, layers = take(node, where, module=str, layers=list)
        return nn.Sequential(*(decode_module(part, f"{where}.{i}") for i, part in enumerate(layers)))
    cls = choose(BY_NAME, name, "module", where)
    _, arguments = take(node, where, module=str, arguments=dict)
    unknown = arguments.keys() - MODULES[cls].keys()
    if unknown:
        raise ValueError(f"{where}.{name} has no argument {sorted(unknown)[0]!r}")
    # torch's own annotations are left to torch, which runs the module when the network is built
    hints = hints_of(cls.__init__) if cls in LAYERS else {}
    module: nn.Module = construct(cls, hints, arguments, f"{where}.{name}")
    return module
