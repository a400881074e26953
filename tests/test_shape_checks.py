"""Checking shapes once finds what checking them in every call finds."""

import dataclasses

import beartype
import jaxtyping
import pytest
import torch
from jaxtyping import Float
from torch import Tensor

from inducing.linalg.cholesky import solve_lower
from tests.shape_checks import check_new_shapes

checked = check_new_shapes(typechecker=beartype.beartype)


def test_calls_after_a_good_one_are_checked_if_their_shapes_are_new():
    @checked
    def add(x: Float[Tensor, "N D"], y: Float[Tensor, "N D"]) -> Float[Tensor, "N D"]:
        return x + y

    assert add(torch.zeros(2, 3), torch.ones(2, 3)).shape == (2, 3)
    for _ in range(2):
        with pytest.raises(jaxtyping.TypeCheckError):
            add(torch.zeros(2, 3), torch.zeros(1, 3))
        with pytest.raises(jaxtyping.TypeCheckError):
            add(torch.zeros(2, 3), y=torch.zeros(2, 3, dtype=torch.int64))


def test_the_linear_algebra_of_the_package_is_checked():
    factor = torch.eye(3).expand(1, 1, 3, 3)
    solve_lower(factor, torch.zeros(1, 1, 3, 2))
    with pytest.raises(jaxtyping.TypeCheckError):
        solve_lower(factor, torch.zeros(1, 1, 4, 2))


def test_wrong_results_are_found():
    @checked
    def transpose(x: Float[Tensor, "N D"]) -> Float[Tensor, "N D"]:
        return x.mT

    transpose(torch.zeros(2, 2))
    with pytest.raises(jaxtyping.TypeCheckError):
        transpose(torch.zeros(2, 3))


def test_known_shapes_are_not_checked_again():
    values = []

    @checked
    def count(x: Float[Tensor, "N"]) -> int:
        values.append(x)
        return 0 if len(values) == 1 else "not a number"

    count(torch.zeros(2))
    assert count(torch.ones(2)) == "not a number"
    with pytest.raises(jaxtyping.TypeCheckError):
        count(torch.zeros(3))


def test_fields_of_a_dataclass_are_checked_if_their_shapes_are_new():
    @checked
    @dataclasses.dataclass(frozen=True)
    class Pair:
        first: Float[Tensor, "N"]
        second: Float[Tensor, "N"]

    @checked
    def first(pair: Pair, scale: Float[Tensor, "M"]) -> Float[Tensor, "M"]:
        return pair.first * scale

    for _ in range(2):
        pair = Pair(torch.zeros(2), second=torch.zeros(2))
        assert first(pair, torch.ones(2)).shape == (2,)
        with pytest.raises(jaxtyping.TypeCheckError):
            Pair(torch.zeros(2), second=torch.zeros(3))
        # the same arguments but for the shapes inside the pair
        with pytest.raises(jaxtyping.TypeCheckError):
            first(Pair(torch.zeros(3, 2)[0], torch.zeros(2)), torch.ones(1))
        with pytest.raises(jaxtyping.TypeCheckError):
            first(Pair(torch.zeros(4), torch.zeros(4)), torch.ones(1))
