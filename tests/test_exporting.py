"""Sampled functions in ONNX and in torch.export: the same outputs for any number of rows, without a solve."""

import subprocess
import sys

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from torch import nn

import inducing
from inducing.exporting import export_module, trace

KERNELS = inducing.kernels
X = torch.randn(12, 3, generator=torch.Generator().manual_seed(0))
IMAGES = torch.randn(5, 3, 8, 8, generator=torch.Generator().manual_seed(1))


class Together(nn.Module):
    """Several functions of the same rows as one module: exporting them together takes a tenth of the time."""

    def __init__(self, networks):
        super().__init__()
        self.functions = nn.ModuleList([network.sample_functions(3) for network in networks])

    def forward(self, x):
        return tuple(functions(x) for functions in self.functions)


def deep_gp(kernel):
    first = inducing.GPLayer(3, 2, kernel, mean="identity", num_features=16)
    return inducing.Network([first, inducing.GPLayer(2, 1, kernel, num_features=16)], inducing_points=X[:6])


def mlp():
    return inducing.models.mlp(3, 2, [5], inducing_points=X[:6])


def convolution():
    block = [inducing.Conv2d(3, 4, 3, stride=2, padding=1), inducing.InducingNorm(), nn.ReLU(), nn.AvgPool2d(2)]
    return inducing.Network([*block, nn.Flatten(), inducing.Linear(16, 10)], inducing_points=IMAGES)


def residual():
    layers = [inducing.Linear(3, 5), inducing.Residual(nn.ReLU(), inducing.Linear(5, 5)), inducing.InducingNorm()]
    return inducing.Network([*layers, inducing.Linear(5, 1, bias=False)], inducing_points=X[:6])


def resnet8():
    return inducing.models.resnet8((3, 8, 8), channels=3, inducing_points=IMAGES, normalise=True)


def gaussian_processes():
    kernels = [KERNELS.as_kernel(name) for name in KERNELS.KERNELS if name != "rbf"]
    kernels.append(KERNELS.Matern12() * KERNELS.ArcCosine(2))
    layers = [inducing.GPLayer(3, 2, kernel, num_features=16) for kernel in kernels]
    deep = deep_gp(KERNELS.Matern32() + KERNELS.Linear())
    return [deep, *(inducing.Network([layer], inducing_points=X[:6]) for layer in layers)]


# modules of one input x, and examples of x
KINDS = {
    "images": lambda: (Together([convolution(), resnet8()]), IMAGES),
    "rows": lambda: (Together([mlp(), residual()]), X),
    "gaussian processes": lambda: (Together(gaussian_processes()), X),
}


def run(path, x):
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    return session.run(None, {"x": x.numpy()})


# all kernels take as long as all other exports together
@pytest.mark.parametrize("kind", ["images", "rows", pytest.param("gaussian processes", marks=pytest.mark.slow)])
def test_onnxruntime_agrees_for_any_number_of_rows(kind, tmp_path):
    module, x = KINDS[kind]()
    path = tmp_path / "model.onnx"
    export_module(module, x, path, [f"outputs_{k}" for k in range(len(module.functions))])
    for rows in (x[:1], torch.cat([x, x + 0.3])):
        for found, expected in zip(run(path, rows), module(rows), strict=True):
            np.testing.assert_allclose(found, expected.numpy(), rtol=1e-5, atol=1e-5)
    assert not {node.op_type for node in onnx.load(path).graph.node} & {"Inverse", "Det", "Loop", "If"}


@pytest.mark.parametrize("kind", KINDS)
def test_torch_export_has_a_dynamic_batch_and_no_solve(kind):
    module, x = KINDS[kind]()
    program = trace(module, x[:3])
    assert not [node for node in program.graph.nodes if "linalg" in str(node.target) or "cholesky" in str(node.target)]
    for rows in (x[:1], torch.cat([x, x + 0.3])):
        torch.testing.assert_close(program.module()(rows), module(rows))


@pytest.mark.parametrize(
    "kind", ["rows", *(pytest.param(kind, marks=pytest.mark.slow) for kind in KINDS if kind != "rows")]
)
def test_the_whole_graph_compiles(kind):
    module, x = KINDS[kind]()
    torch._dynamo.reset()
    # the default backend compiles the same graph with a C++ compiler, which takes minutes for all
    compiled = torch.compile(module, fullgraph=True, backend="eager")
    for rows in (x, x[:2]):
        torch.testing.assert_close(compiled(rows), module(rows))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning")
def test_compiled_functions_agree():
    for network in (mlp(), deep_gp("matern32")):
        functions = network.sample_functions(4)
        torch._dynamo.reset()
        torch.testing.assert_close(torch.compile(functions, fullgraph=True)(X), functions(X), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_activations_in_both_precisions(dtype, tmp_path):
    x = 5 * X.to(dtype)
    modules = [nn.LeakyReLU(0.2), nn.ELU(0.7), nn.GELU(), nn.SiLU(), nn.Sigmoid(), nn.Softplus(2.0), nn.Tanh()]
    layers = [layer for module in modules for layer in (inducing.Linear(3, 3), module)]
    network = inducing.Network(layers, inducing_points=x[:6])
    functions = network.sample_functions(2)
    functions.export(tmp_path / "model.onnx")
    np.testing.assert_allclose(run(tmp_path / "model.onnx", x)[0], functions(x).numpy(), rtol=1e-5, atol=1e-5)


def test_gaussian_processes_in_float64_are_exact(tmp_path):
    """Rounding to float32 anywhere would be amplified by the inverse of the kernel matrix of inducing inputs close by."""
    x = torch.linspace(-2, 2, 36).sin().reshape(12, 3).double()
    kernel = KERNELS.ArcCosine() + KERNELS.Matern52()
    functions = inducing.Network([inducing.GPLayer(3, 2, kernel)], inducing_points=x[:6]).sample_functions(2)
    functions.export(tmp_path / "model.onnx")
    expected = functions(x).numpy()
    np.testing.assert_allclose(run(tmp_path / "model.onnx", x)[0], expected, rtol=1e-5, atol=1e-5)
    # the file is exact; the default optimisations of onnxruntime cost digits
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(tmp_path / "model.onnx", options, providers=["CPUExecutionProvider"])
    np.testing.assert_allclose(session.run(None, {"x": x.numpy()})[0], expected, rtol=0, atol=1e-9)


def test_a_program_of_torch_export_in_a_file(tmp_path):
    functions, x = deep_gp("squared-exponential").sample_functions(2), X
    functions.export(tmp_path / "model.pt2")
    loaded = torch.export.load(tmp_path / "model.pt2").module()
    torch.testing.assert_close(loaded(x), functions(x))


def test_more_rows_than_a_path_runs_at_a_time(monkeypatch):
    functions = deep_gp("matern32").sample_functions(2)
    monkeypatch.setattr("inducing.nn.gp.functions.CHUNK", 100)
    torch.testing.assert_close(trace(functions, X[:3]).module()(X), functions(X))


def test_a_server_needs_only_onnxruntime_and_numpy(tmp_path):
    functions = mlp().sample_functions(50)
    functions.export(tmp_path / "model.onnx")
    np.save(tmp_path / "x.npy", X.numpy())
    script = """
import sys
sys.modules |= dict.fromkeys(["torch", "inducing", "onnx", "scipy", "sklearn", "pandas"])
import numpy as np, onnxruntime
session = onnxruntime.InferenceSession("model.onnx")
(outputs,) = session.run(None, {"x": np.load("x.npy")})
np.save("mean.npy", outputs.mean(0))
"""
    subprocess.run([sys.executable, "-I", "-c", script], cwd=tmp_path, check=True, timeout=120)
    np.testing.assert_allclose(np.load(tmp_path / "mean.npy"), functions(X).mean(0).numpy(), atol=1e-5)


def test_bad_files_are_refused_and_old_ones_kept(tmp_path):
    functions = mlp().sample_functions(2)
    with pytest.raises(ValueError, match=r"\*\.onnx"):
        functions.export(tmp_path / "model.tflite")
    with pytest.raises(FileNotFoundError, match="no folder"):
        functions.export(tmp_path / "missing" / "model.onnx")
    with torch.inference_mode(), pytest.raises(RuntimeError, match="inference_mode"):
        functions.export(tmp_path / "model.onnx")
    (tmp_path / "model.onnx").write_text("old")
    with pytest.raises(ValueError, match=r"functions\.float"):
        convolution().double().sample_functions(2).export(tmp_path / "model.onnx")
    assert (tmp_path / "model.onnx").read_text() == "old"
    assert len(list(tmp_path.iterdir())) == 1
