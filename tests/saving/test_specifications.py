"""Specifications as JSON: all of the library's, nobody else's, and only with arguments of the right types."""

import dataclasses
import json
from typing import Literal

import numpy as np
import pytest

import inducing
from inducing.nn.priors import NealPrior, Prior
from inducing.saving.specifications import SPECIFICATIONS, decode_value, encode_value, fits

kernels = inducing.kernels


@pytest.mark.parametrize(
    "specification",
    [cls() for known in SPECIFICATIONS.values() for cls in known.values() if cls not in (kernels.Sum, kernels.Product)]
    + [
        inducing.ScalePrior(3, 0.5),
        inducing.GlobalInducing("full", -2.5, "closed_form"),
        inducing.LocalInducing(np.int64(7), log_precision=np.float32(0.5)),
        kernels.Matern52(0.3) * (kernels.Linear() + kernels.ArcCosine(3)),
    ],
    ids=str,
)
def test_round_trip_through_json(specification):
    assert decode_value(json.loads(json.dumps(encode_value(specification, "here"))), "here") == specification


def test_a_new_entry_in_the_tables_would_need_no_change_here():
    for kind, table in (("prior", "PRIORS"), ("posterior", "POSTERIORS"), ("kernel", "KERNELS")):
        module = getattr(inducing.nn, f"{kind}s")
        assert set(getattr(module, table).values()) <= set(SPECIFICATIONS[kind].values())


def test_a_class_of_someone_else_is_refused_when_it_is_saved():
    @dataclasses.dataclass(frozen=True)
    class NealPrior2(NealPrior):
        pass

    # a subclass by the same name is another class all the same
    impostor = dataclasses.make_dataclass("NealPrior", [], bases=(NealPrior,), frozen=True)
    for prior in (NealPrior2(), impostor()):
        with pytest.raises(ValueError, match=r"layers.0.prior: .*cannot be saved.*priors NealPrior, StandardPrior"):
            encode_value(prior, "layers.0.prior")


@pytest.mark.parametrize("value", [float("nan"), float("inf"), object(), {"a": 1}, lambda: None])
def test_values_that_json_does_not_hold_are_refused(value):
    with pytest.raises(ValueError, match=r"here.* cannot be saved"):
        encode_value(value, "here")


@pytest.mark.parametrize(
    ("node", "message"),
    [
        (
            {"prior": "os.system", "arguments": {}},
            "there is no prior 'os.system' that can be loaded; there are NealPrior",
        ),
        ({"prior": "Prior", "arguments": {}}, "there is no prior 'Prior'"),
        ({"prior": ["NealPrior"], "arguments": {}}, r"prior cannot be \['NealPrior'\]"),
        ({"prior": "NealPrior"}, "must have the entries"),
        ({"prior": "NealPrior", "arguments": {}, "more": 1}, "must have the entries"),
        ({"class": "NealPrior"}, "is not a specification"),
        ({"prior": "ScalePrior", "arguments": {"size": 1.0}}, "has no argument 'size'"),
        ({"prior": "ScalePrior", "arguments": {"shape": "2"}}, "shape cannot be '2'"),
        ({"prior": "ScalePrior", "arguments": {"shape": True}}, "shape cannot be True"),
        ({"prior": "ScalePrior", "arguments": {"shape": -1.0}}, "needs shape > 0"),
        ({"posterior": "GlobalInducing", "arguments": {"precision": "exact"}}, "precision cannot be 'exact'"),
        ({"posterior": "GlobalInducing", "arguments": {"needs_inducing": False}}, "no argument 'needs_inducing'"),
        ({"posterior": "DSVI", "arguments": {"num_inducing": 2.5}}, "num_inducing cannot be 2.5"),
        ({"kernel": "Sum", "arguments": {"kernels": [1, 2]}}, r"kernels cannot be \(1, 2\)"),
        ({"kernel": "ArcCosine", "arguments": {"depth": 10**9}}, "from 1 to 1000"),
    ],
)
def test_wrong_json_is_refused(node, message):
    with pytest.raises(ValueError, match=message):
        decode_value(node, "here")


def test_fits():
    assert fits(None, None)
    assert fits(1, float | None)
    assert fits("a", Literal["a", "b"])
    assert fits((1, 2), tuple[int, int])
    assert fits((), tuple[Prior, ...])
    assert fits((NealPrior(),), tuple[Prior, ...])
    for value, hint in (
        *((True, int), (1.0, int), ("1", float), (None, float), ("c", Literal["a"]), (["a"], Literal["a"])),
        *(((1,), tuple[int, int]), ([1, 2], tuple[int, int]), ((1, "a"), tuple[int, ...]), (1, Prior)),
    ):
        assert not fits(value, hint), (value, hint)
