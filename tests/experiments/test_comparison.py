import pytest

from inducing.experiments.comparison import ELBO, RMSE, Cell, Comparison, Measure, mark, over_splits


def result(posterior, elbo, split=0, **metrics):
    return {"config": {"posterior": posterior, "split": split}, "metrics": {"elbo_per_datapoint": elbo, **metrics}}


def test_cells_are_means_and_standard_errors_over_splits():
    assert over_splits([-0.2, -0.3, -0.4]) == pytest.approx(Cell(-0.3, 0.1 / 3**0.5, 3))
    assert over_splits([2.8]) == Cell(2.8, 0.0, 1)
    assert Cell(2.8, 0.0, 1).text() == "2.80"
    assert Cell(2.8, 0.123, 3).text(1) == "2.8 ± 0.1"


@pytest.mark.parametrize(
    ("ours", "measure", "expected"),
    [
        (Cell(-0.2, 0.01, 3), ELBO, "better"),
        (Cell(-0.28, 0.0, 3), ELBO, "better"),
        (Cell(-0.30, 0.0, 3), ELBO, "within"),
        (Cell(-0.31, 0.0, 3), ELBO, "short by 0.03"),
        (Cell(-0.31, 0.013, 3), ELBO, "within"),
        (Cell(-0.5, 0.2, 3), ELBO, "within"),
        (Cell(-0.5, 0.01, 3), ELBO, "short by 0.22"),
        (Cell(-0.5, 0.01, 3), RMSE, "better"),
        (Cell(-0.265, 0.0, 3), RMSE, "within"),
        (Cell(-0.25, 0.0, 3), RMSE, "short by 0.03"),
        (Cell(-0.5, 0.01, 3), ELBO._replace(higher_is_better=None), ""),
    ],
)
def test_marks(ours, measure, expected):
    """Within two combined standard errors, the paper's is 0.01, or within 0.02 where the figure is in nats."""
    assert mark(ours, Cell(-0.28, 0.01, 20), measure) == expected


def test_the_least_margin_holds_for_nats_only():
    assert mark(Cell(1.01, 0.0, 1), Cell(1.0, 0.0, 1), RMSE) == "short by 0.01"
    assert mark(Cell(0.98, 0.0, 1), Cell(1.0, 0.0, 1), ELBO) == "within"


def test_rows():
    variance = Measure(("layer_variance", 1), "V[F2]", 3, higher_is_better=None)
    paper = {"local": Cell(-2.0, 0.1, 20), "global": Cell(-1.0, 0.0, 1)}
    comparison = Comparison(
        {"posterior": ("local", "global", "mine")},
        [ELBO, RMSE, variance],
        lambda key, measure: paper.get(key[0]) if measure == ELBO else None,
    )
    results = [
        result("mine", 3.0, layer_variance=[1.0, 0.25]),
        result("global", -1.5),
        result("local", -1.9),
        result("local", -2.0, split=1),
    ]
    headings, lines = comparison.rows(results)
    assert headings == ["posterior", "splits", "ELBO", "the paper", "mark", "V[F2]", "the paper"], "no run has an RMSE"
    assert lines == [
        ["local", "2", "-1.95 ± 0.05", "-2.00 ± 0.10", "better", "", ""],
        ["global", "1", "-1.50", "-1.00", "short by 0.50", "", ""],
        ["mine", "1", "3.00", "", "", "0.250", ""],
    ]


def test_rows_without_results():
    comparison = Comparison({"posterior": ("local",)}, [ELBO], lambda key, measure: None)
    assert comparison.rows([]) == (["posterior", "splits"], [])
