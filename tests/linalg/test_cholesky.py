import warnings

import pytest
import torch

from inducing.linalg.cholesky import (
    FactorisationError,
    Jitter,
    JitterWarning,
    cholesky,
    factorise,
    factorise_without_jitter,
    located,
    logdet,
    recorded_jitter,
    solve_lower,
    solve_lower_transposed,
)


def spd(*batch, size=5):
    root = torch.randn(*batch, size, size, dtype=torch.float64)
    return root @ root.mT + torch.eye(size, dtype=torch.float64)


def test_a_good_matrix_is_left_as_it_is():
    matrix = spd(3)
    factor = cholesky(matrix)
    torch.testing.assert_close(factor @ factor.mT, matrix, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(logdet(factor), torch.logdet(matrix))


def test_only_the_failing_member_of_a_batch_gets_jitter():
    good, singular = spd(), torch.ones(5, 5, dtype=torch.float64)
    with pytest.warns(JitterWarning, match=r"5 x 5 .* relative jitter of 1\.0e-04.* float64"):
        factor = cholesky(torch.stack([good, singular]), Jitter(first=1e-4))
    torch.testing.assert_close(factor[0] @ factor[0].mT, good, rtol=1e-13, atol=1e-13)
    torch.testing.assert_close(factor[1] @ factor[1].mT, singular + 1e-4 * torch.eye(5).double(), rtol=0, atol=1e-10)


def test_jitter_is_recorded_for_a_log():
    with recorded_jitter() as used:
        cholesky(torch.eye(3))
        with (
            pytest.warns(JitterWarning, match=r"layers\.0 Linear\(3, 3\): a 3 x 3 matrix"),
            located("layers.0", "Linear(3, 3)"),
        ):
            cholesky(torch.ones(3, 3), Jitter(first=1e-4))
    assert used == [1e-4]


def test_without_jitter_a_failure_is_none():
    near = torch.tensor([[1.0, 1 - 1e-3], [1 - 1e-3, 1.0]])
    torch.testing.assert_close(factorise_without_jitter(near).factor, torch.linalg.cholesky(near))
    assert factorise_without_jitter(torch.stack([near, -near])) is None


def test_jitter_respects_the_scale_of_each_row():
    # rows of scale 1e6 and 1e-6, the first two identical: absolute jitter would drown the small one
    scale = torch.tensor([1e6, 1e6, 1e-6], dtype=torch.float64)
    matrix = scale[:, None] * torch.tensor([[1.0, 1, 0], [1, 1, 0], [0, 0, 1]], dtype=torch.float64) * scale
    with pytest.warns(JitterWarning):
        factor = cholesky(matrix)
    torch.testing.assert_close(factor[2, 2], scale[2], rtol=1e-6, atol=0)


def test_the_initial_jitter_is_always_added_and_not_reported():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        factor = cholesky(torch.eye(2, dtype=torch.float64), Jitter(initial=0.21))
    torch.testing.assert_close(factor, 1.1 * torch.eye(2, dtype=torch.float64))


def test_the_ladder_stops_at_the_maximum():
    assert Jitter(initial=1e-5, factor=10.0, maximum=1e-3).ladder(torch.float64) == pytest.approx([1e-5, 1e-4, 1e-3])


@pytest.mark.parametrize(
    ("matrix", "message"),
    [
        (-torch.eye(3), r"layers\.2 .*even with a relative jitter.*float64"),
        (torch.full((3, 3), float("nan")), r"layers\.2 .*contains NaN or inf.*learning rate"),
        (torch.full((3, 3), float("inf")), r"layers\.2 .*contains NaN or inf"),
    ],
)
def test_failure_names_the_layer_the_causes_and_the_remedy(matrix, message):
    with pytest.raises(FactorisationError, match=message), located("layers.2", "Linear(3, 3)"):
        cholesky(matrix)


@pytest.mark.parametrize("shared", [True, False])
def test_solves_fold_samples_that_share_a_factor(shared):
    factor = cholesky(spd(1 if shared else 4, 2))
    right = torch.randn(4, 2, 5, 3, dtype=torch.float64)
    torch.testing.assert_close(factor @ solve_lower(factor, right), right)
    torch.testing.assert_close(factor.mT @ solve_lower_transposed(factor, right), right)


def test_gradients():
    matrix = spd(2, 1, size=3).requires_grad_()
    right = torch.randn(2, 1, 3, 2, dtype=torch.float64, requires_grad=True)

    def solve(matrix, right):
        return solve_lower_transposed(cholesky((matrix + matrix.mT) / 2), right)

    assert torch.autograd.gradcheck(solve, (matrix, right))


def test_the_matrix_is_returned_with_the_jitter_that_it_needed():
    singular = torch.ones(2, 2, dtype=torch.float64)
    with pytest.warns(JitterWarning):
        matrix, factor = factorise(singular)
    assert (matrix.diagonal() > 1).all()
    torch.testing.assert_close(factor @ factor.mT, matrix, rtol=1e-14, atol=1e-14)
