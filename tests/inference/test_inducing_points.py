import pytest
import torch

import inducing

X = torch.randn(200, 3)
Y = X.sum(1, keepdim=True)


def pick(**kwargs):
    return inducing.choose_inducing_points(X, Y, **kwargs)


@pytest.mark.parametrize("method", ["first", "random", "kmeans"])
def test_points_are_rows_with_their_targets(method):
    points, targets = pick(num_inducing=20, method=method)
    assert points.shape == (20, 3)
    assert len(torch.unique(points, dim=0)) == 20
    torch.testing.assert_close(targets, points.sum(1, keepdim=True))
    assert torch.equal(points, pick(num_inducing=20, method=method).points), "the seed decides"


def test_first_rows_are_the_first():
    assert torch.equal(pick(num_inducing=7, method="first").points, X[:7])


def test_kmeans_covers_the_data_better_than_the_first_rows():
    clustered = torch.cat([torch.randn(190, 2), 10 + torch.randn(10, 2)])
    points, _ = inducing.choose_inducing_points(clustered, clustered[:, :1], 20)
    assert torch.cdist(clustered, points).amin(1).max() < torch.cdist(clustered, clustered[:20]).amin(1).max() / 2


def test_duplicate_rows_and_images_do():
    same = torch.ones(30, 1, 4, 4)
    points, _ = inducing.choose_inducing_points(same, torch.zeros(30).long(), 5)
    assert points.shape == (5, 1, 4, 4)


def test_more_than_there_are_is_all_there_are():
    assert torch.equal(pick(num_inducing=1000).points, X)


def test_auto_is_100_or_all_rows():
    assert len(pick().points) == 100
    assert len(inducing.choose_inducing_points(X[:30], Y[:30]).points) == 30


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"method": "grid"}, ValueError, "unknown method 'grid'"),
        ({"num_inducing": 0}, ValueError, "at least 1"),
        ({"num_inducing": "many"}, TypeError, 'a whole number or "auto"'),
    ],
)
def test_bad_arguments_are_refused(arguments, error, message):
    with pytest.raises(error, match=message):
        pick(**arguments)


def test_bad_data_are_refused():
    with pytest.raises(ValueError, match="NaN or inf"):
        inducing.choose_inducing_points(X / 0, Y)
    with pytest.raises(ValueError, match="same number of rows"):
        inducing.choose_inducing_points(X, Y[:3])
