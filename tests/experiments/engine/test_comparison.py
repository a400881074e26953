import pytest

from inducing.experiments.engine import comparison as engine
from inducing.experiments.engine.comparison import (
    ELBO,
    KL,
    RMSE,
    Comparison,
    Estimate,
    Measure,
    mark,
    over_splits,
)


def result(posterior, elbo, split=0, **metrics):
    return {"config": {"posterior": posterior, "split": split}, "metrics": {"elbo_per_datapoint": elbo, **metrics}}


def texts(table):
    return [[getattr(cell, "text", cell) for cell in row] for row in table.rows]


def test_cells_are_means_and_standard_errors_over_splits():
    assert over_splits([-0.2, -0.3, -0.4]) == pytest.approx(Estimate(-0.3, 0.1 / 3**0.5, 3))
    assert over_splits([2.8]) == Estimate(2.8, 0.0, 1)
    assert Estimate(2.8, 0.0, 1).text() == "2.80"
    assert Estimate(2.8, 0.123, 3).text(1) == "2.8 ± 0.1"


@pytest.mark.parametrize(
    ("ours", "measure", "expected"),
    [
        (Estimate(-0.2, 0.01, 3), ELBO, "better by 0.08"),
        (Estimate(-0.28, 0.0, 3), ELBO, "equal"),
        (Estimate(-0.33, 0.0, 3), ELBO, "equal"),
        (Estimate(-0.34, 0.0, 3), ELBO, "worse by 0.06"),
        (Estimate(-0.30, 0.0, 20), ELBO, "equal"),
        (Estimate(-0.31, 0.0, 20), ELBO, "worse by 0.03"),
        (Estimate(-0.5, 0.2, 3), ELBO, "equal"),
        (Estimate(-0.36, 0.0, 1), ELBO, "equal"),
        (Estimate(-0.5, 0.01, 3), RMSE, "better by 0.22"),
        (Estimate(-0.25, 0.0, 3), RMSE, "equal"),
        (Estimate(-0.2, 0.0, 3), RMSE, "worse by 0.08"),
        (Estimate(-0.2, 0.0, 3), KL, "differs by 0.08"),
    ],
)
def test_marks(ours, measure, expected):
    """The paper's spread over splits is 0.01 * sqrt(20) = 0.045, so 3 splits have a margin of 2 |(0.026, 0.01)| = 0.055."""
    cell = mark(ours, Estimate(-0.28, 0.01, 20), measure)
    assert cell.text == expected
    style = {"better": "good", "worse": "bad"}.get(expected.split()[0], "neutral")
    assert cell.style == style


def test_numbers_without_standard_errors():
    """In nats 0.02 counts, elsewhere half of the last digit in the table."""
    assert mark(Estimate(1.01), Estimate(1.0), RMSE).text == "worse by 0.01"
    assert mark(Estimate(1.004), Estimate(1.0), RMSE).text == "equal"
    assert mark(Estimate(0.98), Estimate(1.0), ELBO).text == "equal"
    assert mark(Estimate(1.03), Estimate(1.0), ELBO).text == "better by 0.03"


def test_rows(monkeypatch):
    variance = Measure("layer_variance", "V[F2]", 3, higher_is_better=None, layer=1)
    paper = {"local": {"elbo_per_datapoint": [-2.0, 0.1]}, "global": {"elbo_per_datapoint": -1.0}}
    monkeypatch.setattr(engine, "published", lambda: {"table": paper})
    comparison = Comparison(["posterior"], [ELBO, RMSE, variance], "table")
    results = [
        result("local", -1.9),
        result("global", -1.5),
        result("local", -2.0, split=1),
        result("mine", 3.0, layer_variance=[1.0, 0.25]),
    ]
    table = comparison.table(results)
    assert list(table.headings) == ["posterior", "splits", "ELBO", "the paper", "mark", "V[F2]"], "no run has an RMSE"
    assert texts(table) == [
        ["local", "2", "-1.95 ± 0.05", "-2.00 ± 0.10", "equal", ""],
        ["global", "1", "-1.50", "-1.00", "worse by 0.50", ""],
        ["mine", "1", "3.00", "", "", "0.250"],
    ]
    brief = comparison.table(results, brief=True)
    assert list(brief.headings) == ["posterior", "ELBO", "V[F2]"]
    assert texts(brief)[0] == ["local", "-1.95 ± 0.05 (-2.00)", ""]
    assert brief.note.startswith("In brackets: the paper")
    assert comparison.verdicts(results) == {("local",): "equal", ("global",): "worse"}


def test_a_row_may_lack_the_first_measure():
    sampled = {"config": {"posterior": "hmc"}, "metrics": {"rmse": 0.5}}
    comparison = Comparison(["posterior"], [ELBO, RMSE])
    assert texts(comparison.table([sampled, result("global", -1.0)])) == [
        ["hmc", "1", "", "0.50"],
        ["global", "1", "-1.00", ""],
    ]


def test_rows_without_results():
    table = Comparison(["posterior"], [ELBO]).table([])
    assert (list(table.headings), list(table.rows)) == (["posterior", "splits"], [])


def test_runs_that_do_not_count_have_no_marks():
    comparison = Comparison(["posterior"], [ELBO], "toy_compositional_bnn")
    runs = [result("factorised", -4.6) | {"state": "converged"}, result("local", -5.5) | {"state": "not converged"}]
    runs += [result("global", -2.2), result("global", -2.3, split=1) | {"state": "out of date"}]
    assert comparison.states(runs) == {
        ("factorised",): "converged",
        ("local",): "not converged",
        ("global",): "out of date",
    }
    assert list(comparison.verdicts(runs)) == [("factorised",)]
    assert [row[-1] for row in texts(comparison.table(runs))] == ["equal", "", ""]
    assert [row[3] for row in texts(comparison.table(runs))] == ["converged", "not converged", "out of date"]
    assert comparison.cells(runs, only_counted=True) == {(("factorised",), ELBO)}
    assert len(comparison.cells(runs)) == 3
