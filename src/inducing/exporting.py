"""Modules written to files that other programs run: ONNX (.onnx), and programs of `torch.export` (.pt2).

The number of rows stays free. Functions of posterior draws contain no factorisation and no solve: these are done when the
functions are drawn. ONNX files are run once by onnxruntime and compared with torch before they are written.
"""

from __future__ import annotations

import io
import json
import logging
import math
import os
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from inducing.checks import refuse_inference_mode
from inducing.extras import require
from inducing.files import check_writable, write_atomically

SUFFIXES = (".onnx", ".pt2")
# largest difference between torch and onnxruntime, relative to the largest output
TOLERANCE = 1e-5
# ONNX files are limited to 2 GiB
LARGEST = 2**31 - 2**20


def check_path(path: str | os.PathLike[str]) -> Path:
    """Check the name of the file, that it can be written, and that the packages to write it are installed."""
    path = Path(path)
    if path.suffix not in SUFFIXES:
        raise ValueError(f"cannot export to {path.name!r}. Name the file *.onnx (ONNX) or *.pt2 (torch.export)")
    if path.suffix == ".onnx":
        for package in ("onnx", "onnxscript", "onnxruntime"):
            require(package)
    check_writable(path)
    return path


def export_module(
    module: nn.Module,
    example: Tensor,
    path: str | os.PathLike[str],
    outputs: Sequence[str],
    description: dict[str, Any] | None = None,
) -> None:
    """Write a module of one argument ``x`` to a file. An existing file is replaced when the new one is complete.

    Arguments:
        module: The module. Its first axis of inputs has any size.
        example: Rows to trace and to check it with, at least two.
        path: File to write, .onnx or .pt2.
        outputs: Names of its outputs.
        description: Facts about the model, each of which is stored as JSON in the file.
    """
    path = check_path(path)
    refuse_inference_mode("export")
    with torch.no_grad(), _quiet():
        program = trace(module, example)
        if path.suffix == ".pt2":
            buffer = io.BytesIO()
            torch.export.save(program, buffer, extra_files={k: json.dumps(v) for k, v in (description or {}).items()})
            content = buffer.getvalue()
        else:
            content = _to_onnx(program, outputs, description or {})
            found = module(example)
            _check_onnx(content, example, [found] if isinstance(found, Tensor) else found)
    write_atomically(path, content)


def trace(module: nn.Module, example: Tensor) -> torch.export.ExportedProgram:
    """Return a module of one argument ``x`` as a program of `torch.export` for any number of rows."""
    dynamic = {"x": {0: torch.export.Dim.DYNAMIC}}
    return torch.export.export(module, (example,), dynamic_shapes=dynamic, strict=False)


def _to_onnx(program: torch.export.ExportedProgram, outputs: Sequence[str], description: dict[str, Any]) -> bytes:
    import onnxscript

    formulas = _float64_formulas()
    if any(node.target in formulas for node in program.graph.nodes):
        program = program.run_decompositions(formulas)
    numbers = _replace_numbers(program)
    temporary = [f"output_{name}" for name in outputs]
    # optimised below, with the right numbers
    written = torch.onnx.export(
        program,
        (),
        dynamo=True,
        verbose=False,
        optimize=False,
        external_data=False,
        input_names=["x"],
        output_names=temporary,
    )
    assert written is not None
    model = written.model_proto
    # the exporter might give a node that computes a mean the name of the output "mean"
    _rename(model.graph, {name: f"inner_{name}" for name in outputs} | dict(zip(temporary, outputs, strict=True)))
    _restore_numbers(model, numbers)
    model = onnxscript.optimizer.optimize(model)
    if model.ByteSize() > LARGEST:
        raise ValueError(
            f"the ONNX file would have {model.ByteSize() / 2**30:.1f} GiB; the limit is 2. Draw fewer samples"
        )
    for name, value in description.items():
        model.metadata_props.add(key=name, value=json.dumps(value))
    return model.SerializeToString()


def _rename(graph: Any, names: dict[str, str]) -> None:
    """Rename values of an ONNX graph."""
    for node in graph.node:
        node.input[:] = [names.get(name, name) for name in node.input]
        node.output[:] = [names.get(name, name) for name in node.output]
    for value in (*graph.initializer, *graph.value_info, *graph.output):
        value.name = names.get(value.name, value.name)


def _replace_numbers(program: torch.export.ExportedProgram) -> dict[float, float]:
    """Replace numbers of the code in float64, such as sqrt(5), by numbers that float32 represents, and return both.

    The exporter of torch 2.13 rounds them to float32, and the inverse of a kernel matrix would amplify the error. The new
    numbers are large and unlike any other in the model.
    """
    numbers: dict[float, float] = {}

    def replace(number: Any) -> Any:
        if not isinstance(number, float) or not math.isfinite(number) or float(np.float32(number)) == number:
            return number
        placeholder = 2.0**100 * (1 + (len(numbers) + 1) / 2**20)
        numbers[placeholder] = number
        return placeholder

    for node in program.graph.nodes:
        values = [each.meta.get("val") for each in (node, *node.all_input_nodes)]
        if node.op == "call_function" and any(isinstance(v, Tensor) and v.dtype == torch.float64 for v in values):
            node.args, node.kwargs = torch.utils._pytree.tree_map(replace, (node.args, node.kwargs))
    return numbers


def _restore_numbers(model: Any, numbers: dict[float, float]) -> None:
    """Write the numbers of the code into an ONNX model in float64."""
    from onnx import numpy_helper

    constants = [attribute.t for node in model.graph.node for attribute in node.attribute if attribute.HasField("t")]
    for constant in (*model.graph.initializer, *constants):
        if math.prod(constant.dims) == 1:
            value = numpy_helper.to_array(constant)
            if float(value.item()) in numbers:
                restored = np.full(value.shape, numbers[float(value.item())], dtype=np.float64)
                constant.CopyFrom(numpy_helper.from_array(restored, constant.name))


def _check_onnx(content: bytes, example: Tensor, expected: Sequence[Tensor]) -> None:
    """Run the model in onnxruntime and compare its outputs with those of torch."""
    import onnxruntime

    try:
        session = onnxruntime.InferenceSession(content, providers=["CPUExecutionProvider"])
        found = session.run(None, {"x": example.cpu().numpy()})
    except Exception as error:
        advice = " It has fewer operations in float64: try functions.float()" if example.dtype == torch.float64 else ""
        raise ValueError(f"onnxruntime cannot run this model: {error}.{advice}") from error
    for one, other in zip(found, expected, strict=True):
        wanted = other.cpu().numpy()
        difference = np.abs(one - wanted).max(initial=0.0)
        if not difference <= TOLERANCE * max(1.0, np.abs(wanted).max(initial=0.0)):
            raise ValueError(f"onnxruntime and torch differ by {difference:.1g} in this model, so it was not written")


def _float64_formulas() -> dict[Any, Callable[..., Any]]:
    """Formulas for operations that onnxruntime has in float32 only. They are used where numbers are in float64."""
    aten = torch.ops.aten
    formulas: dict[Any, Callable[..., Tensor]] = {
        aten.acos.default: _acos,
        aten.asinh.default: lambda x: x.sign() * torch.log(x.abs() + (x.square() + 1).sqrt()),
        aten.erf.default: lambda x: torch.erf(x.float()).double(),
        aten.gelu.default: _gelu,
        aten.leaky_relu.default: _leaky_relu,
        aten.elu.default: _elu,
        aten.softplus.default: _softplus,
        # onnxscript 0.7 writes an invalid file if a tensor is clamped twice
        aten.clamp.default: _clamp,
    }
    return {operation: _only_float64(formula) for operation, formula in formulas.items()}


def _only_float64(formula: Callable[..., Tensor]) -> Callable[..., Any]:
    return lambda x, *settings, **named: formula(x, *settings, **named) if x.dtype == torch.float64 else NotImplemented


def _acos(x: Tensor) -> Tensor:
    # acos|x| = sqrt(1 - |x|) p(|x|), to 7e-5 (Abramowitz & Stegun, 4.4.45)
    size = x.abs()
    angle = (1 - size).sqrt() * (1.5707288 + size * (-0.2121144 + size * (0.0742610 - size * 0.0187293)))
    angle = torch.where(x < 0, math.pi - angle, angle)
    # it is wrong by d = acos(x) - angle:   sin(d) = sin(acos(x)) cos(angle) - x sin(angle),   d = sin(d) + sin(d)^3 / 6
    sine = ((1 - x) * (1 + x)).sqrt() * angle.cos() - x * angle.sin()
    return angle + sine + sine**3 / 6


def _gelu(x: Tensor, approximate: str = "none") -> Tensor:
    return nn.functional.gelu(x.float(), approximate=approximate).double()


def _leaky_relu(x: Tensor, slope: float = 0.01) -> Tensor:
    return torch.where(x > 0, x, slope * x)


def _elu(x: Tensor, alpha: float = 1.0, scale: float = 1.0, input_scale: float = 1.0) -> Tensor:
    return scale * torch.where(x > 0, x, alpha * (torch.exp(input_scale * x.clamp_max(0)) - 1))


def _softplus(x: Tensor, beta: float = 1.0, threshold: float = 20.0) -> Tensor:
    scaled = beta * x
    return torch.where(scaled > threshold, x, (scaled.relu() + torch.log(1 + torch.exp(-scaled.abs()))) / beta)


def _clamp(x: Tensor, low: float | None = None, high: float | None = None) -> Tensor:
    x = x if low is None else torch.where(x < low, low, x)
    return x if high is None else torch.where(x > high, high, x)


@contextmanager
def _quiet() -> Iterator[None]:
    """Without the messages of the exporters, which are about their own code and about packages that are not needed."""
    loggers = [logging.getLogger(name) for name in ("torch.onnx", "onnxscript", "onnx_ir")]
    before = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        for logger, level in zip(loggers, before, strict=True):
            logger.setLevel(level)
