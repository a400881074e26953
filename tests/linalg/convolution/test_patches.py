"""Gram matrices of convolutions against the patches themselves, in float64."""

import subprocess
import sys

import pytest
import torch
from torch.autograd import gradcheck
from torch.nn import functional

from inducing.linalg.convolution import zero_padded
from inducing.linalg.convolution.geometry import Geometry
from inducing.linalg.convolution.patches import conv_cross, conv_gram, conv_sums, patches

SAMPLES, IMAGES, CHANNELS, OUTPUTS = 2, 3, 2, 4
GEOMETRIES = [
    *(Geometry((size, size), boundary="circular") for size in (1, 3, 5)),
    Geometry((3, 1), boundary="circular"),
    *(
        Geometry((size, size), (stride, stride), (padding, padding), "exact")
        for size, padding in ((1, 0), (3, 1), (3, 0), (5, 2), (2, 0))
        for stride in (1, 2)
    ),
]


@pytest.fixture(params=[(6, 6), (5, 7)], ids=str)
def maps(request):
    return torch.randn(SAMPLES, IMAGES, CHANNELS, *request.param, dtype=torch.float64)


def unfolded(x, geometry):
    """Patches by torch's own unfold, from a map that is padded with zeros or wrapped around."""
    flat = x.flatten(0, 1)
    rows, columns = geometry.kernel_size
    if geometry.boundary == "circular":
        flat = functional.pad(flat, (columns // 2, columns // 2, rows // 2, rows // 2), mode="circular")
        taken = functional.unfold(flat, geometry.kernel_size)
    else:
        taken = functional.unfold(flat, geometry.kernel_size, padding=geometry.padding, stride=geometry.stride)
    # (S M, F, n) to (S, M, n, F)
    return taken.mT.unflatten(0, x.shape[:2])


@pytest.mark.parametrize("geometry", GEOMETRIES, ids=str)
def test_patches_are_those_of_unfold(maps, geometry):
    found = patches(maps, geometry)
    assert found.shape[2:4] == geometry.output_shape(*maps.shape[-2:])
    torch.testing.assert_close(found.flatten(2, 3), unfolded(maps, geometry))


@pytest.fixture(params=[0, 2**60], ids=["fewest pixels", "fewest products"])
def _plan(request, monkeypatch):
    """Gram matrices from pieces of windows, or from whole windows if these are fewer."""
    monkeypatch.setattr(zero_padded, "OVERHEAD", request.param)
    zero_padded.gram_products.cache_clear()
    yield
    zero_padded.gram_products.cache_clear()


@pytest.mark.usefixtures("_plan")
@pytest.mark.parametrize("geometry", GEOMETRIES, ids=str)
@pytest.mark.parametrize("groups", [1, OUTPUTS])
def test_gram_cross_and_sums_equal_those_of_explicit_patches(maps, geometry, groups, monkeypatch):
    """And so do their gradients, with respect to the maps, the precisions and the values; two images at a time."""
    monkeypatch.setattr("inducing.linalg.convolution.patches.CHUNK", 2 * maps[:, 0].numel())
    shape = geometry.output_shape(*maps.shape[-2:])
    weights = torch.rand(groups, IMAGES, dtype=torch.float64) + 0.1
    values = torch.randn(IMAGES, OUTPUTS, *shape, dtype=torch.float64)
    rows = unfolded(maps, geometry)
    features = rows.shape[-1]
    cotangents = (
        torch.randn(SAMPLES, groups, features, features, dtype=torch.float64),
        torch.randn(SAMPLES, features, OUTPUTS, dtype=torch.float64),
        torch.randn(SAMPLES, groups, features, dtype=torch.float64),
    )

    def ours(x, w, v):
        return conv_gram(x, w, geometry), conv_cross(x, w, v, geometry), conv_sums(x, w, geometry)

    def explicit(x, w, v):
        rows = unfolded(x, geometry)
        return (
            torch.einsum("smnf,gm,smnk->sgfk", rows, w, rows),
            torch.einsum("smnf,om,mon->sfo", rows, w.expand(OUTPUTS, -1), v.flatten(2)),
            torch.einsum("smnf,gm->sgf", rows, w),
        )

    results = []
    for compute in (ours, explicit):
        inputs = [tensor.clone().requires_grad_() for tensor in (maps, weights, values)]
        outputs = compute(*inputs)
        sum((output * cotangent).sum() for output, cotangent in zip(outputs, cotangents, strict=True)).backward()
        results.append([*outputs, *(tensor.grad for tensor in inputs)])
    for found, expected in zip(*results, strict=True):
        torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("geometry", GEOMETRIES[1:2] + GEOMETRIES[6:8], ids=str)
def test_gradients_agree_with_finite_differences(geometry):
    x = torch.randn(1, 2, 2, 3, 4, dtype=torch.float64, requires_grad=True)
    weights = torch.rand(1, 2, dtype=torch.float64, requires_grad=True)
    values = torch.randn(2, 1, *geometry.output_shape(3, 4), dtype=torch.float64, requires_grad=True)
    assert gradcheck(lambda x, w: conv_gram(x, w, geometry), (x, weights), fast_mode=True)
    assert gradcheck(lambda x, w, v: conv_cross(x, w, v, geometry), (x, weights, values), fast_mode=True)


@pytest.mark.parametrize("boundary", ["circular", "exact"])
@pytest.mark.parametrize("groups", [1, 8])
def test_temporaries_take_at_most_three_times_the_map(boundary, groups):
    """Peak memory of forward and backward in a fresh process, beyond the map, its gradient and the Gram matrix."""
    script = f"""
import resource, torch
from inducing.linalg.convolution.geometry import Geometry
from inducing.linalg.convolution.patches import conv_gram
torch.set_num_threads(1)
geometry = Geometry((3, 3), (1, 1), (1, 1), "{boundary}")
def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
def run(images):
    x = torch.randn(1, images, 16, 32, 32, requires_grad=True)
    weights = torch.ones({groups}, images)
    before = peak()
    conv_gram(x, weights, geometry).square().sum().backward()
    return before, peak(), x.numel() * 4
run(4)
before, after, size = run({500 if groups == 1 else 150})
print((after - before) / size)
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=120, check=True)
    # the gradient itself is one map
    assert float(done.stdout) < 1 + 3
