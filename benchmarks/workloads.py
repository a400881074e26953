"""What is measured: for each workload our side, the other side, and the operations that are necessary."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

import inducing
from benchmarks import images, operations
from benchmarks.textbook import TextbookNetwork, run
from inducing.inference.state import TrainingState
from inducing.linalg.convolution.geometry import Geometry
from inducing.linalg.convolution.patches import conv_gram

Step = Callable[[], object]


@dataclass(frozen=True)
class Workload:
    """Two ways to do the same work.

    Arguments:
        what: The sizes, in words.
        other: What stands on the other side.
        target: The ratio that is wanted.
        build: Makes the two sides, ours first.
        operations: Floating-point operations that the work needs, however it is arranged.
        dtype: In which they are done.
    """

    what: str
    other: str
    target: float
    build: Callable[[], tuple[Step, Step]]
    operations: float
    dtype: torch.dtype = torch.float32


def training_step(network: inducing.Network, x: Tensor, y: Tensor, num_samples: int) -> Step:
    """Forward, backward and optimiser, as `inducing.fit` does them."""
    elbo = inducing.ELBO(network, inducing.Gaussian(), len(x))
    state = TrainingState(list(elbo.parameters()), 1e-3, num_steps=1, num_layers=len(network.layer_names))

    def step() -> None:
        state.optimizer.zero_grad()
        (-elbo(x, y, num_samples).objective / len(x)).backward()
        state.optimizer.step()

    return step


def textbook_step(network: TextbookNetwork, x: Tensor, y: Tensor, num_samples: int) -> Step:
    """The same for the textbook implementation."""
    optimizer = torch.optim.Adam(network.parameters(), lr=1e-3, fused=True)

    def step() -> None:
        optimizer.zero_grad()
        (-network.elbo(x, y, num_samples).mean() / len(x)).backward()
        optimizer.step()

    return step


def problem(widths: list[int], num_data: int, num_inducing: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Standard normal inputs and targets, and what the inducing points begin with."""
    torch.manual_seed(0)
    rows = max(num_data, num_inducing)
    x, y = torch.randn(rows, widths[0]), torch.randn(rows, widths[-1])
    return x[:num_data], y[:num_data], x[:num_inducing], y[:num_inducing]


def our_network(
    widths: list[int], num_data: int, num_inducing: int, precision: str
) -> tuple[inducing.Network, Tensor, Tensor]:
    """A fully connected network with global inducing points, and data for it."""
    x, y, points, targets = problem(widths, num_data, num_inducing)
    posterior = inducing.GlobalInducing(precision)
    network = inducing.models.mlp(
        widths[0], widths[-1], widths[1:-1], posterior=posterior, inducing_points=points, inducing_targets=targets
    )
    return network, x, y


def dense(widths: list[int], num_data: int, num_inducing: int, num_samples: int, precision: str) -> tuple[Step, Step]:
    """A training step of a fully connected network against the textbook's."""
    network, x, y = our_network(widths, num_data, num_inducing, precision)
    _, _, points, targets = problem(widths, num_data, num_inducing)
    textbook = TextbookNetwork(widths, points, targets, precision == "per_output")
    return training_step(network, x, y, num_samples), textbook_step(textbook, x, y, num_samples)


def deep_gp_step(num_layers: int, posterior: str) -> Step:
    """A training step of a deep Gaussian process of width 13: 455 data, M = 100, S = 10."""
    x, y, points, targets = problem([13, 1], 455, 100)
    network = inducing.models.deep_gp(
        13, 1, num_layers, posterior=posterior, inducing_points=points, inducing_targets=targets
    )
    return training_step(network, x, y, 10)


def against_gpytorch(num_layers: int, *, shared: bool, dtype: torch.dtype = torch.float32) -> tuple[Step, Step]:
    """DSVI against GPyTorch's DeepGP, in the dtype of its parameters; ours factorises in float64."""
    from benchmarks import deep_gp

    x, y, _, _ = problem([13, 1], 455, 100)
    other = deep_gp.training_step(x.to(dtype), y.to(dtype), num_layers, 100, 10, shared)
    return deep_gp_step(num_layers, "dsvi"), other


def prediction(*, draw_once: bool) -> tuple[Step, Step]:
    """10,000 points with 100 draws in batches of 500, against the textbook with one inducing pass or one for each batch."""
    network, x, y = our_network([13, 50, 50, 1], 455, 100, "per_output")
    textbook = TextbookNetwork([13, 50, 50, 1], x[:100], y[:100], per_output=True)
    rows, likelihood = torch.randn(10_000, 13), inducing.Gaussian()

    @torch.no_grad()
    def other() -> None:
        if draw_once:
            weights, _ = textbook.draw(100)
            torch.cat([run(weights, batch) for batch in rows.split(500)], 1)
        else:
            torch.cat([run(textbook.draw(100)[0], batch) for batch in rows.split(500)], 1)

    return lambda: inducing.predict(network, likelihood, rows, 100, 500), other


def self_convolution_gram(x: Tensor, kernel_size: int) -> Tensor:
    """X'X of all circular patches, from the map convolved with itself: G_s = sum_iu X_{i,u} X_{i,u+s}'."""
    channels, reach = x.shape[1], kernel_size - 1
    maps = x.transpose(0, 1)
    # (b, c, s): channel b shifted by s against channel c
    products = functional.conv2d(functional.pad(maps, (reach,) * 4, mode="circular"), maps)
    places = torch.cartesian_prod(torch.arange(kernel_size), torch.arange(kernel_size))
    down, across = (places[None] - places[:, None] + reach).unbind(-1)
    # rows are channel c and place d, columns channel b and place e, with s = e - d
    return products[:, :, down, across].permute(1, 2, 0, 3).reshape(channels * len(places), channels * len(places))


def convolution() -> tuple[Step, Step]:
    """The Gram matrix of 500 maps of 32 x 16 x 16 under a 3 x 3 kernel, and its gradient."""
    torch.manual_seed(0)
    x = torch.randn(500, 32, 16, 16, requires_grad=True)
    weights, geometry = torch.ones(1, 500), Geometry((3, 3), (1, 1), (1, 1), "circular")
    cotangent = torch.randn(288, 288)

    def ours() -> None:
        torch.autograd.grad(conv_gram(x[None], weights, geometry)[0, 0], x, cotangent)

    return ours, lambda: torch.autograd.grad(self_convolution_gram(x, 3), x, cotangent)


TOY, UCI, WIDE = [1, 50, 50, 1], [13, 50, 50, 1], [5, 250, 250, 1]

WORKLOADS = {
    "toy": Workload(
        "1-50-50-1, 40 data, M = 100, S = 10, shared precision",
        "textbook",
        6,
        lambda: dense(TOY, 40, 100, 10, "shared"),
        operations.dense(TOY, 40, 100, 10, per_output=False),
    ),
    "uci-per-output": Workload(
        "13-50-50-1, 455 data, M = 100, S = 10, a precision for each output",
        "textbook",
        5,
        lambda: dense(UCI, 455, 100, 10, "per_output"),
        operations.dense(UCI, 455, 100, 10, per_output=True),
    ),
    "uci-per-output-full": Workload(
        "the same with M = 455",
        "textbook",
        9,
        lambda: dense(UCI, 455, 455, 10, "per_output"),
        operations.dense(UCI, 455, 455, 10, per_output=True),
    ),
    "uci-shared": Workload(
        "13-50-50-1, 455 data, M = 100, S = 10, shared precision",
        "textbook",
        5,
        lambda: dense(UCI, 455, 100, 10, "shared"),
        operations.dense(UCI, 455, 100, 10, per_output=False),
    ),
    "wide": Workload(
        "5-250-250-1, 1000 data, M = 10, S = 1, shared precision",
        "textbook",
        40,
        lambda: dense(WIDE, 1000, 10, 1, "shared"),
        operations.dense(WIDE, 1000, 10, 1, per_output=False),
    ),
    "conv-gram": Workload(
        "forward and backward, 500 maps of 32 x 16 x 16, 3 x 3",
        "the map convolved with itself",
        3.5,
        convolution,
        operations.convolution_gram(500, 32, 16 * 16, 3),
    ),
    "resnet8": Workload(
        "ResNet-8, 32 channels, batch 100, 100 inducing images, SpatialIWPrior",
        "the plain network on the same batch",
        0.2,
        lambda: images.training_step(100, 100),
        operations.resnet8(32, 100, 100),
    ),
    "resnet8-batch": Workload(
        "500 images through drawn weights of the same network, forward and backward, at once",
        "the same in five pieces",
        0.91,
        lambda: images.pieces(500, 100),
        operations.resnet8(32, 500, 0),
    ),
    "dgp-2": Workload(
        "13-13-1, 455 data, M = 100, S = 10, DSVI, ours in float32 with factorisations in float64",
        "GPyTorch's DeepGP in float32, a kernel and inducing points for each output",
        4,
        lambda: against_gpytorch(2, shared=False),
        operations.dsvi(13, 2, 455, 100, 10),
        torch.float64,
    ),
    "dgp-2-shared": Workload(
        "the same",
        "GPyTorch's DeepGP in float32, a kernel and inducing points for each layer",
        1,
        lambda: against_gpytorch(2, shared=True),
        operations.dsvi(13, 2, 455, 100, 10),
        torch.float64,
    ),
    "dgp-2-shared-float64": Workload(
        "the same",
        "GPyTorch's DeepGP in float64, a kernel and inducing points for each layer",
        1,
        lambda: against_gpytorch(2, shared=True, dtype=torch.float64),
        operations.dsvi(13, 2, 455, 100, 10),
        torch.float64,
    ),
    "dgp-5": Workload(
        "as dgp-2 with five layers",
        "GPyTorch's DeepGP in float32, a kernel and inducing points for each output",
        4,
        lambda: against_gpytorch(5, shared=False),
        operations.dsvi(13, 5, 455, 100, 10),
        torch.float64,
    ),
    "dgp-5-shared": Workload(
        "the same",
        "GPyTorch's DeepGP in float32, a kernel and inducing points for each layer",
        1,
        lambda: against_gpytorch(5, shared=True),
        operations.dsvi(13, 5, 455, 100, 10),
        torch.float64,
    ),
    "dgp-5-shared-float64": Workload(
        "the same",
        "GPyTorch's DeepGP in float64, a kernel and inducing points for each layer",
        1,
        lambda: against_gpytorch(5, shared=True, dtype=torch.float64),
        operations.dsvi(13, 5, 455, 100, 10),
        torch.float64,
    ),
    "dgp-global": Workload(
        "13-13-1, 455 data, M = 100, S = 10, global inducing points",
        "our DSVI",
        0.8,
        lambda: (deep_gp_step(2, "global"), deep_gp_step(2, "dsvi")),
        operations.global_deep_gp(13, 2, 455, 100, 10),
        torch.float64,
    ),
    "predict": Workload(
        "13-50-50-1, M = 100, a precision for each output: 10,000 points, 100 draws, batches of 500",
        "textbook that draws again for each batch",
        5,
        lambda: prediction(draw_once=False),
        operations.prediction(UCI, 10_000, 100, 100),
    ),
    "predict-draw-once": Workload(
        "the same",
        "textbook that draws once",
        1,
        lambda: prediction(draw_once=True),
        operations.prediction(UCI, 10_000, 100, 100),
    ),
}
