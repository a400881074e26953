"""A module of torch as a list of steps, found by `torch.fx`: modules one after the other, and additions of two branches.

    x -> relu(bn(conv(x)) + x)   becomes   [Addition([conv with bn folded in], []), ReLU]

BatchNorm is folded into the layer before it, with its running statistics. Dropout is left out. Functions such as
`torch.relu` become modules.
"""

from __future__ import annotations

import copy
import operator
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NoReturn

import torch
from torch import fx, nn
from torch.nn import functional
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.dropout import _DropoutNd
from torch.nn.utils.fusion import fuse_conv_bn_eval, fuse_linear_bn_eval

from inducing.nn.layers.deterministic import without_inplace

# functions and methods of tensors, and the modules that do the same
MODULES: dict[Callable[..., Any] | str, type[nn.Module]] = {
    **dict.fromkeys((functional.relu, functional.relu_, torch.relu, torch.relu_, "relu", "relu_"), nn.ReLU),
    **dict.fromkeys((functional.tanh, torch.tanh, "tanh"), nn.Tanh),
    **dict.fromkeys((functional.sigmoid, torch.sigmoid, "sigmoid"), nn.Sigmoid),
    functional.relu6: nn.ReLU6,
    functional.leaky_relu: nn.LeakyReLU,
    functional.elu: nn.ELU,
    functional.gelu: nn.GELU,
    functional.silu: nn.SiLU,
    functional.softplus: nn.Softplus,
    functional.max_pool2d: nn.MaxPool2d,
    functional.avg_pool2d: nn.AvgPool2d,
    functional.adaptive_avg_pool2d: nn.AdaptiveAvgPool2d,
    **dict.fromkeys((torch.flatten, "flatten"), nn.Flatten),
}
ADDITIONS = (operator.add, operator.iadd, torch.add, "add", "add_")
DROPOUT = (functional.dropout, functional.dropout2d)
ADVICE = (
    "To keep the part below the last layer as it is, use inducing.Network([inducing.Deterministic(body), "
    "inducing.Linear(...)], ...)"
)


@dataclass(frozen=True, eq=False)
class Operation:
    """A module, with its name in the traced one."""

    name: str
    module: nn.Module


@dataclass(frozen=True, eq=False)
class Addition:
    """The sum of two branches with the same input."""

    body: Steps
    shortcut: Steps


Steps = list[Operation | Addition]


def trace(module: nn.Module) -> Steps:
    """List the steps of a module in evaluation mode. Its tensors are copied."""
    # a single layer would be traced as a function of its weights
    root = copy.deepcopy(module if next(module.children(), None) else nn.Sequential(module)).eval()
    try:
        graph = fx.symbolic_trace(root).graph
    except Exception as error:
        # user code runs on placeholders without values, and may raise anything
        raise ValueError(f"torch.fx cannot trace {type(module).__name__}: {error}. {ADVICE}") from error
    return _Tracing(root, graph).all_steps()


def operations(steps: Steps) -> list[Operation]:
    """All modules in the steps. The body of an addition comes before its shortcut."""
    found: list[Operation] = []
    for step in steps:
        found += [step] if isinstance(step, Operation) else operations(step.body) + operations(step.shortcut)
    return found


class _Tracing:
    """Follows the graph of a module from its output back to its input."""

    def __init__(self, root: nn.Module, graph: fx.Graph) -> None:
        self.root, self.nodes = root, list(graph.nodes)
        self.used: set[str] = set()
        self.removed: list[str] = []
        # the nodes that every path from the input to a node passes through
        self.passed: dict[fx.Node, set[fx.Node]] = {}
        for node in self.nodes:
            below = [self.passed[each] for each in node.all_input_nodes]
            self.passed[node] = {node}.union(set.intersection(*below) if below else ())

    def all_steps(self) -> Steps:
        inputs = [node for node in self.nodes if node.op == "placeholder"]
        output = self.nodes[-1].args[0]
        if len(inputs) != 1 or not isinstance(output, fx.Node):
            raise ValueError(f"the module must have one input and return one tensor. {ADVICE}")
        steps = self.steps(output, inputs[0])
        if self.removed:
            # the Bayesian layers replace its noise
            warnings.warn(f"Dropout is left out: {', '.join(self.removed[::-1])}", stacklevel=4)
        return steps

    def steps(self, node: fx.Node, start: fx.Node) -> Steps:
        """The steps from the value of `start` to the value of `node`."""
        steps: Steps = []
        while node is not start:
            if node.op in ("call_function", "call_method") and node.target in ADDITIONS:
                found, node = self.addition(node)
                steps.append(found)
            else:
                operation, node = self.operation(node)
                steps += [] if operation is None else [operation]
        return steps[::-1]

    def addition(self, node: fx.Node) -> tuple[Addition, fx.Node]:
        """An addition, and the node where its branches begin."""
        if len(node.args) != 2 or node.kwargs or not all(isinstance(each, fx.Node) for each in node.args):
            self.refuse(node, "only sums of two branches are known")
        first, second = node.args
        assert isinstance(first, fx.Node)
        assert isinstance(second, fx.Node)
        common = self.passed[first] & self.passed[second]
        if not common:
            self.refuse(node, "its branches have no common input")
        fork = max(common, key=self.nodes.index)
        branches = [self.steps(first, fork), self.steps(second, fork)]
        body, shortcut = sorted(branches, key=lambda branch: -len(operations(branch)))
        return Addition(body, shortcut), fork

    def operation(self, node: fx.Node) -> tuple[Operation | None, fx.Node]:
        """A module, or None for one that does nothing, and the node of its input."""
        known = node.op == "call_module" or node.target in (*MODULES, *DROPOUT) or _flattens(node)
        below = node.args[0] if node.args else None
        if not known or not isinstance(below, fx.Node):
            names = ", ".join(sorted({cls.__name__ for cls in MODULES.values()}))
            self.refuse(node, f"known are modules, sums, Dropout and functions that do the same as {names}")
        if node.op == "call_module":
            if len(node.args) > 1 or node.kwargs:
                self.refuse(node, "it has several inputs")
            return self.module(node, below)
        if node.target in DROPOUT:
            self.removed.append(node.name)
            return None, below
        if _flattens(node):
            return Operation(node.name, nn.Flatten()), below
        settings = {name: value for name, value in node.kwargs.items() if name != "inplace"}
        return Operation(node.name, without_inplace(MODULES[node.target](*node.args[1:], **settings))), below

    def module(self, node: fx.Node, below: fx.Node) -> tuple[Operation | None, fx.Node]:
        name, module = str(node.target), self.root.get_submodule(str(node.target))
        if next(module.parameters(), None) is not None:
            if name in self.used:
                raise ValueError(f"{name} is used twice, but a layer of a Network has one place. {ADVICE}")
            self.used.add(name)
        if isinstance(module, _DropoutNd):
            self.removed.append(name)
            return None, below
        if isinstance(module, nn.Identity):
            return None, below
        if isinstance(module, _BatchNorm) and module.running_mean is not None and self.is_foldable(below):
            layer, after = self.operation(below)
            assert layer is not None
            return Operation(layer.name, _fold(layer.module, module)), after
        return Operation(name, without_inplace(module)), below

    def is_foldable(self, node: fx.Node) -> bool:
        """Whether a node is a layer whose output only the BatchNorm after it uses."""
        return (
            node.op == "call_module"
            and len(node.users) == 1
            and type(self.root.get_submodule(str(node.target))) in (nn.Linear, nn.Conv2d)
        )

    def refuse(self, node: fx.Node, reason: str) -> NoReturn:
        raise ValueError(f"{node.name} ({_name(node.target)}) cannot be converted: {reason}. {ADVICE}")


def _fold(layer: nn.Module, norm: _BatchNorm) -> nn.Module:
    # W' = W gamma / sqrt(var + eps),  b' = (b - mean) gamma / sqrt(var + eps) + beta
    fuse = fuse_conv_bn_eval if isinstance(layer, nn.Conv2d) else fuse_linear_bn_eval
    return fuse(layer, norm)  # type: ignore[type-var]


def _flattens(node: fx.Node) -> bool:
    """Whether x.view(rows, -1) is called, with a number of rows that depends on x."""
    is_view = node.op == "call_method" and node.target in ("view", "reshape") and len(node.args) == 3
    return is_view and isinstance(node.args[1], fx.Node) and node.args[2:] == (-1,)


def _name(target: Callable[..., Any] | str) -> str:
    return target if isinstance(target, str) else target.__name__
