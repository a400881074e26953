"""`inducing fit --time-budget`."""

import pytest
from typer.testing import CliRunner

from inducing.cli import app
from tests.tables.examples import INPUTS, make_table


@pytest.fixture
def fit(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    make_table()[[*INPUTS, "price"]].to_csv("t.csv", index=False)
    return lambda *options: CliRunner().invoke(app, ["fit", "t.csv", "--target", "price", *map(str, options)])


@pytest.mark.parametrize(
    ("options", "share"),
    [
        ((), "0.3 s"),
        (("--refit",), "0.15 s, a share of the 0.3 s"),
        (("--model", "auto"), "0.05 s, a share of the 0.3 s"),
    ],
    ids=["one fit", "refit", "auto"],
)
def test_the_output_says_that_time_decided(options, share, fit):
    done = fit("--time-budget", 0.3, *options)
    assert done.exit_code == 0, done.stderr
    assert f"as many steps as fit into {share} (--time-budget)" in done.stdout


def test_a_generous_budget_decides_nothing(fit):
    done = fit("--time-budget", 1000, "--max-steps", 10)
    assert "the limit (--max-steps)" in done.stdout


def test_a_budget_is_positive(fit):
    done = fit("--time-budget", 0)
    assert done.exit_code == 2
    assert "--time-budget must be a positive number" in done.stderr
