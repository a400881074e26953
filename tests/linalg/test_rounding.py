"""Estimated rounding errors against the errors themselves: float32 and float64 with the same noise."""

import math

import pytest
import torch

from inducing.linalg.cholesky import Factorisation
from inducing.linalg.dual import solve_dual
from inducing.linalg.precision import Dense, Kronecker, ScaledIdentity
from inducing.linalg.primal import Accuracy, solve_primal
from inducing.linalg.pseudo_likelihood import PseudoOutputs
from inducing.linalg.rounding import MAX_KL_ERROR, MAX_WEIGHT_ERROR, Rounding, dual_rounding, primal_rounding


def make_prior(kind, features):
    if kind == "identity":
        return ScaledIdentity(torch.tensor([float(features)], dtype=torch.float64), features)
    root = torch.randn(9, 9, dtype=torch.float64)
    covariance = features * (root @ root.mT / 9 + 0.1 * torch.eye(9, dtype=torch.float64))[None]
    if kind == "kronecker":
        return Kronecker(ScaledIdentity(torch.ones(1, dtype=torch.float64), features // 9), Dense(covariance))
    return Dense(torch.kron(torch.eye(features // 9, dtype=torch.float64), covariance[0])[None])


def solve(inputs, pseudo, prior, noise, row_noise=None, checked=False):
    if row_noise is not None:
        return solve_dual(inputs, pseudo, prior, noise, row_noise, checked)
    return solve_primal(pseudo.statistics(inputs), prior, noise, Accuracy(inputs.shape[-2]) if checked else None)


def capture(monkeypatch, form, found):
    """Accept all results in float32, and record the estimated errors."""
    estimate = {"primal": primal_rounding, "dual": dual_rounding}[form]

    def call(*arguments):
        found.append(estimate(*arguments))
        return Rounding(0.0, 0.0)

    monkeypatch.setattr(f"inducing.linalg.{form}.{form}_rounding", call)


@pytest.mark.parametrize("prior", ["identity", "kronecker", "dense"])
@pytest.mark.parametrize("groups", [1, 3])
@pytest.mark.parametrize("kind", ["random", "near-duplicates", "smooth", "scales"])
@pytest.mark.parametrize("form", ["primal", "dual"])
def test_estimates_are_of_the_size_of_the_error(form, kind, groups, prior, monkeypatch):
    rows, features = (100, 36) if form == "primal" else (30, 54)
    found = []
    capture(monkeypatch, form, found)
    ratios = []
    for seed in range(10):
        torch.manual_seed(seed)
        inputs = torch.randn(1, rows, features, dtype=torch.float64).relu()
        if kind == "near-duplicates":
            inputs[:, rows // 2 :] = inputs[:, : rows // 2] + 1e-3 * torch.randn(1, rows // 2, features)
        if kind == "smooth":
            phase = torch.linspace(0, 3, rows)[:, None] * torch.linspace(0, 2, features)
            inputs = torch.sin(phase + inputs[:, :1])
        if kind == "scales":
            inputs = inputs * torch.logspace(-2, 2, features)
        for log_precision in (4.0, 6.0):
            root = (log_precision / 2 + 0.5 * torch.randn(groups, rows)).exp().double()
            problem = inputs, PseudoOutputs(torch.randn(rows, 3).double(), root), make_prior(prior, features)
            # as they are in float32, so that rounding the arguments is no part of the error
            problem = problem[0].float().double(), problem[1].to(torch.float32).to(torch.float64), problem[2]
            noises = [torch.randn(1, groups, features, 3 // groups, dtype=torch.float64)]
            if form == "dual":
                noises.append(torch.randn(1, groups, rows, 3 // groups, dtype=torch.float64))
            exact = solve(*problem, *noises)
            single = solve(*(part.to(torch.float32) for part in (*problem, *noises)), checked=True)
            if single is None:
                # it cannot even be factorised
                continue
            error = (single.kl.double() - exact.kl).abs().item()
            ratios.append(found[-1].kl / max(error, 1e-5))
    ratios = torch.tensor(ratios)
    assert ratios.min() > 0.5
    assert ratios.median() < 300


def test_groups_with_equal_precisions_have_equal_errors():
    """All outputs start with the same precisions, so the errors of their factorisations add up."""
    torch.manual_seed(0)
    inputs, groups = torch.randn(1, 100, 36).relu(), 50
    matrix = (36 * torch.eye(36) + 50 * inputs.mT @ inputs).expand(1, groups, -1, -1)
    exact = torch.linalg.cholesky(matrix.double()).diagonal(dim1=-2, dim2=-1).log().sum()
    single = Factorisation(matrix, torch.linalg.cholesky(matrix))
    error = (single.factor.diagonal(dim1=-2, dim2=-1).double().log().sum() - exact).abs()
    prior = ScaledIdentity(torch.tensor([36.0]), 36)
    assert primal_rounding(single, prior, torch.zeros(1, groups, 36, 1), torch.zeros(1, groups), 100).kl > error


def test_estimates_include_targets_that_cancel():
    """Y't may be zero up to a rounding error, which is proportional to the targets."""
    prior = ScaledIdentity(torch.tensor([1.0]), 1)
    matrix = torch.full((1, 1, 1, 1), 1e4)
    posterior, draw = Factorisation(matrix, matrix.sqrt()), torch.full((1, 1, 1, 1), 0.01)
    arguments = posterior, prior, draw, prior.quadratic_by_group(draw), 10_000
    without, square = primal_rounding(*arguments), torch.tensor([[1e16]])
    assert primal_rounding(*arguments, square).kl > 100 * without.kl


def test_the_scale_of_columns_does_not_matter():
    """Columns times a factor, weights divided by it, prior precisions times its square: the same problem."""
    inputs = torch.randn(1, 1, 20, 6)
    draw, scale = torch.randn(1, 1, 6, 2).double(), torch.logspace(-3, 3, 6)

    def estimate(scale):
        prior = Dense(torch.diag(scale.square())[None].double())
        matrix = prior.add_to((inputs * scale).mT @ (inputs * scale))
        scaled = draw / scale[:, None]
        posterior = Factorisation(matrix, torch.linalg.cholesky(matrix))
        return primal_rounding(posterior, prior, scaled, prior.quadratic_by_group(scaled), 20)

    assert estimate(scale) == pytest.approx(estimate(torch.ones(6)), rel=1e-4)


@pytest.mark.parametrize(
    ("kl", "weights", "is_small"),
    [
        (0.0, 0.0, True),
        (MAX_KL_ERROR, MAX_WEIGHT_ERROR, True),
        (1.1 * MAX_KL_ERROR, 0.0, False),
        (0.0, 1.1 * MAX_WEIGHT_ERROR, False),
        (math.nan, 0.0, False),
        (math.inf, 0.0, False),
    ],
)
def test_is_small(kl, weights, is_small):
    assert Rounding(kl, weights).is_small() is is_small
