"""The products of a Gram matrix: each block contains each of its pairs of pixels once."""

import itertools
from collections import Counter

import pytest
import torch

from inducing.linalg.convolution import zero_padded
from inducing.linalg.convolution.geometry import Geometry
from inducing.linalg.convolution.zero_padded import gram_products

GEOMETRIES = [
    Geometry((rows, columns), (stride, stride), (padding, padding), "exact")
    for (rows, columns), stride, padding in itertools.product([(1, 1), (3, 3), (5, 3), (2, 4)], [1, 2, 3], [0, 1, 2])
]
CASES = [
    (geometry, size)
    for geometry, size in itertools.product(GEOMETRIES, [(8, 7), (3, 4)])
    if min(geometry.output_shape(*size)) > 0
]


@pytest.fixture(params=[0, 2**60], ids=["fewest pixels", "fewest products"])
def _plan(request, monkeypatch):
    monkeypatch.setattr(zero_padded, "OVERHEAD", request.param)
    gram_products.cache_clear()
    yield
    gram_products.cache_clear()


def expected_pairs(geometry, height, width, d, e):
    """Pairs of pixels of the map that are multiplied for one block, by definition."""
    inside = set(itertools.product(range(height), range(width)))
    pairs = Counter()
    for u, v in itertools.product(*map(range, geometry.output_shape(height, width))):
        first, second = (
            (u * geometry.stride[0] + i - geometry.padding[0], v * geometry.stride[1] + j - geometry.padding[1])
            for i, j in (geometry.places[d], geometry.places[e])
        )
        if first in inside and second in inside:
            pairs[first, second] += 1
    return pairs


@pytest.mark.usefixtures("_plan")
@pytest.mark.parametrize(("geometry", "size"), CASES, ids=str)
def test_each_block_is_made_of_its_own_pixels(geometry, size):
    pixels = torch.arange(float(size[0] * size[1])).reshape(size)
    found = {}
    for product in gram_products(geometry, *size, 1):
        first, second = (window.take(pixels).flatten().int().tolist() for window in (product.first, product.second))
        pairs = [(divmod(p, size[1]), divmod(q, size[1])) for p, q in zip(first, second, strict=True)]
        for block in product.blocks:
            found.setdefault(block, Counter()).update(pairs)
    for d, e in itertools.combinations_with_replacement(range(len(geometry.places)), 2):
        assert found.get((d, e), Counter()) == expected_pairs(geometry, *size, d, e)


@pytest.mark.usefixtures("_plan")
def test_three_by_three_with_padding_takes_13_maps_12_lines_and_4_corners():
    products = gram_products(Geometry((3, 3), (1, 1), (1, 1), "exact"), 10, 10, 1)
    kinds = Counter(sum(count == 1 for _, count, _ in (p.first.rows, p.first.columns)) for p in products)
    assert kinds == {0: 13, 1: 12, 2: 4}


def test_small_products_are_not_cut_into_pieces():
    """A 5 x 5 kernel without padding: 881 pieces, or 325 whole windows."""
    geometry = Geometry((5, 5), (1, 1), (0, 0), "exact")
    assert len(gram_products(geometry, 14, 14, 100)) == 325
    assert len(gram_products(geometry, 14, 14, 100 * 64**2)) == 881
