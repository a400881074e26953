"""Tables in the terminal: the whole path through the real command, and what it tells."""

import gzip
import io
import json
from pathlib import Path

import numpy as np
import onnxruntime
import pandas as pd
import pytest
import torch
from rich.console import Console
from typer.testing import CliRunner

import inducing
from inducing.cli import app
from inducing.estimators import architectures, auto
from inducing.pages import to_rich
from inducing.tables import fitting
from inducing.tables.predicting import TableModel
from tests.cli.commands import HOLE, TABLE, change, command, refused, run
from tests.tables.examples import INPUTS, NASTY, outcome


def test_fit_predict_report(here):
    """From a table to predictions and a report, and that twice the same seed gives the same."""
    done = command("fit", "t.csv", "--target", "price", "--max-steps", 20, "--report", "r.html")
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    for part in (
        "regression ('price' is numeric; change it with --task)",
        "54 training rows, 6 test rows, 3 input columns",
        "20/20",
        "HeteroscedasticGaussian likelihood, 54 global inducing points: all distinct rows, with an exact last layer",
        "trained for 20 steps:",
        "the limit (--max-steps)",
        "BNNRegressor",
    ):
        assert part in done.stdout
    for part in (
        "RMSE",
        "log-likelihood",
        "CRPS",
        "in 50 %",
        "in 90 %",
        "in 95 %",
        "constant",
        "ridge",
        "model.safetensors",
    ):
        assert part in done.stdout
    done = command("predict", "model.safetensors", "t.csv", "--out", "p.csv")
    assert (done.returncode, done.stdout, done.stderr) == (0, "60 rows: p.csv\n", "")
    found = pd.read_csv("p.csv")
    again = inducing.load("model.safetensors")["estimator"].predict(TABLE[list(INPUTS)])
    np.testing.assert_allclose(found["price_mean"], again, rtol=1e-9)
    page = (here / "r.html").read_text()
    assert page.startswith("<!doctype html>")
    assert NASTY not in page
    assert sorted(path.name for path in here.iterdir()) == ["model.safetensors", "p.csv", "r.html", "t.csv"]


def test_classes_of_a_deep_gaussian_process(here):
    TABLE.assign(id=range(60), twin=TABLE["size"], same=1).to_csv("all.csv", index=False)
    excluded = [argument for name in ("price", "grade", "id") for argument in ("--exclude", name)]
    done = run(
        "fit", "all.csv", "--target", "kind", *excluded, "--max-steps", 5, "--model", "dgp", "--out", "c.safetensors"
    )
    assert done.exit_code == 0, done.stderr
    for part in (
        "classification ('kind' is text; change it with --task)",
        "DeepGPClassifier",
        "accuracy",
        "ECE",
        "logistic",
    ):
        assert part in done.stdout
    assert done.stderr.splitlines() == [
        "inducing fit: warning: columns that are left out: 'same' (constant)",
        "inducing fit: warning: duplicate columns are not informative: 'twin = size'",
    ]
    done = run("predict", "c.safetensors", "all.csv", "--keep", "id")
    assert done.exit_code == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[0].startswith("id,kind_class,kind=cheap ")
    assert len(lines) == 61


def test_the_real_command_refuses_with_one_line(here):
    assert refused(command("fit", "t.csv", "--target", "cost"), "inducing fit: ", "no column 'cost'")


def test_scores_fit_a_terminal():
    console = Console(width=80, record=True, file=io.StringIO())
    console.print(to_rich(outcome("price", "weight", model="dgp").score_table()))
    text = console.export_text()
    for part in ("DeepGPRegressor ", "log-likelihood", "in 95 %", "standard deviations"):
        assert part in text


def test_options_reach_the_estimator(here, monkeypatch):
    seen = {}

    def stop(model, problem, **parameters):
        impute, transform = problem.encoded.schema.columns[0].fill is not None, problem.target_transform
        seen.update(parameters, model=model, impute=impute, transform=transform)
        seen.update(test=len(problem.test), task=problem.task)
        raise ValueError("seen")

    monkeypatch.setattr(fitting, "make_estimator", stop)
    options = [
        "--model",
        "dgp",
        "--posterior",
        "dsvi",
        "--likelihood",
        "student-t",
        "--no-impute",
        "--target-transform",
        "none",
        "--device",
        "cuda",
        "--seed",
        3,
        "--test-fraction",
        0.5,
    ]
    assert refused(run("fit", "t.csv", "--target", "price", *options), "inducing fit: seen")
    assert seen == {
        "model": "dgp", "posterior": "dsvi", "prior": None, "likelihood": "student-t", "impute": False, "max_steps": None,
        "time_budget": None, "device": "cuda", "random_state": 3, "verbose": True, "test": 30, "task": "regression", "transform": "none",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("likelihood", "task"), [("poisson", "regression"), ("categorical", "classification"), ("auto", "classification")]
)
def test_a_likelihood_decides_the_task(likelihood, task, here, monkeypatch):
    TABLE[["size", "grade"]].to_csv("g.csv", index=False)
    monkeypatch.setattr(fitting, "make_estimator", lambda model, problem, **_: pytest.fail(problem.task))
    with pytest.raises(pytest.fail.Exception, match=task):
        CliRunner().invoke(
            app, ["fit", "g.csv", "--target", "grade", "--likelihood", likelihood], catch_exceptions=False
        )


def test_the_reason_for_the_task_is_told(here, monkeypatch):
    """A likelihood decides the task, but is not a request for it."""
    TABLE[["size", "grade"]].to_csv("g.csv", index=False)
    monkeypatch.setattr(fitting, "fit_training_rows", lambda *_: (_ for _ in ()).throw(ValueError("stop")))
    fit = ("fit", "g.csv", "--target", "grade")
    assert "regression (the likelihood is poisson)\n" in run(*fit, "--likelihood", "poisson").stdout
    assert "regression (requested)\n" in run(*fit, "--likelihood", "poisson", "--task", "regression").stdout
    assert "whole numbers; change it with --task)\n" in run(*fit, "--likelihood", "auto").stdout


def test_a_misspelt_likelihood_is_refused_before_anything_is_printed(here):
    done = run("fit", "t.csv", "--target", "price", "--likelihood", "gausian")
    assert refused(done, "did you mean 'gaussian'?")
    assert done.stdout == ""


def test_a_default_number_of_steps_and_a_replaced_file_are_told(here, monkeypatch):
    monkeypatch.setitem(architectures.BNN_FEW_ROWS, "num_steps", 2)
    Path("model.safetensors").write_text("old")
    done = run("fit", "t.csv", "--target", "price")
    assert "trained for 2 steps:" in done.stdout
    assert "the default number of steps for 54 rows; --max-steps raises it" in done.stdout
    assert "model: model.safetensors (replaced)\n" in done.stdout


def test_what_was_done_to_columns_is_told(here):
    """In the terminal, in the report, in the model file, and in predictions."""
    random = np.random.default_rng(0)
    messy = pd.DataFrame(
        {
            "id": range(1, 201),
            "area": [f"{area:,.1f} m²" for area in random.uniform(500, 2000, 200)],
            "built": pd.date_range("1990-01-01", periods=200, freq="37D").strftime("%d/%m/%Y"),
            "city": [f"city {city}" for city in random.integers(0, 25, 200)],
            "colour": random.choice(["red", "blue", None], 200),
            "same": 1,
            "price": [f"${price:,.2f}" for price in np.exp(random.normal(5, 1, 200))],
        }
    )
    messy.to_csv("messy.csv", index=False)
    done = run("fit", "messy.csv", "--target", "price", "--max-steps", 5, "--report", "r.html", "--seed", 1)
    assert done.exit_code == 0, done.stderr
    page = (here / "r.html").read_text()
    saved = inducing.load("model.safetensors")["estimator"].schema_.describe()
    for words in (
        ("id", "left out", "row numbers", "0"),
        ("area", "number in m²", "unchanged", "1"),
        ("built", "date, 19", "day-month-year", "days, year, month, weekday", "6"),
        ("city", "text, 25 levels", "effects on the target", "1"),
        ("colour", "text, 2 categories", "one-hot; ", "missing values: a category", "3"),
        ("same", "left out", "constant", "0"),
    ):
        (row,) = (row for row in saved.rows if row[0] == words[0])
        assert all(word in " ".join(row) for word in words)
        assert all(cell in page for cell in row)
        assert words[0] in done.stdout
    assert "180 training rows, 20 test rows, 4 input columns, 2 left out" in done.stdout
    assert "id (row numbers), same (constant)" in page
    assert "price is modelled on a log scale; change it with --target-transform" in done.stdout
    assert done.stderr == "inducing fit: warning: columns that are left out: 'id' (row numbers), 'same' (constant)\n"
    messy.drop(columns=["price", "same"]).to_csv("new.csv", index=False)
    done = run("predict", "model.safetensors", "new.csv", "--keep", "id", "--out", "p.csv")
    assert done.exit_code == 0, done.stderr
    assert (pd.read_csv("p.csv")["price_q05"] > 0).all()
    plain = run(
        "fit", "messy.csv", "--target", "price", "--max-steps", 1, "--target-transform", "none", "--include", "id"
    )
    assert "log scale" not in plain.stdout
    assert "'id'" not in plain.stderr


def test_values_that_are_missing_only_later_are_told(model):
    change(size=HOLE).to_csv("new.csv", index=False)
    done = run("predict", model, "new.csv", "--out", "p.csv")
    assert done.exit_code == 0
    assert done.stderr == "inducing predict: warning: column 'size': 1 missing value imputed\n"


def test_one_row_is_singular(model):
    change(colour="green")[:1].to_csv("new.csv", index=False)
    done = run("predict", model, "new.csv", "--out", "p.csv")
    assert done.stdout == "1 row: p.csv\n"
    assert "column 'colour': 1 row with" in done.stderr


def test_the_saved_model_is_fitted_to_all_rows_on_request(here):
    fit = ("fit", "t.csv", "--target", "price", "--max-steps", 3)
    for options, words, rows in (
        ((), "model: model.safetensors", 54),
        (("--refit",), "model, fitted to all rows: model.safetensors (replaced)", 60),
        (("--test-fraction", 0), "model, fitted to all rows: model.safetensors (replaced)", 60),
    ):
        done = run(*fit, *options)
        assert done.exit_code == 0, done.stderr
        assert words in done.stdout
        assert ("RMSE" in done.stdout) == ("--test-fraction" not in options)
        assert TableModel.load(here / "model.safetensors").estimator.network_.num_inducing == rows


@pytest.mark.parametrize("options", [(), ("--refit",), ("--test-fraction", 0)], ids=str)
def test_one_model_with_all_the_weight(options, here, monkeypatch):
    monkeypatch.setattr(auto, "find_weights", lambda scores, rows: np.array([0, 0, 1.0]))
    done = run("fit", "t.csv", "--target", "price", "--max-steps", 2, "--model", "auto", *options)
    assert done.exit_code == 0, done.stderr
    assert "weights of models: trees 1.00. Log-likelihoods" in done.stdout
    estimator = TableModel.load(here / "model.safetensors").estimator
    assert isinstance(estimator, fitting.ESTIMATORS["trees"]["regression"])


@pytest.mark.parametrize("target", ["price", "colour"])
def test_a_blend_of_models(target, here, monkeypatch):
    """It is fitted again with the same weights, saved, reported, and predicts, and is exported."""
    monkeypatch.setattr(auto, "find_weights", lambda scores, rows: np.array([0.5, 0, 0.5]))
    monkeypatch.setattr(auto, "find_noise_factor", lambda *arguments: 0.5)
    options = ("--max-steps", 2, "--model", "auto", "--refit", "--report", "r.html")
    done = run("fit", "t.csv", "--target", target, *options)
    assert done.exit_code == 0, done.stderr
    assert (
        "weights of models: bnn 0.50, trees 0.50. Log-likelihoods of rows held out of the training rows: bnn"
        in done.stdout
    )
    assert done.stdout.count("trained for 2 steps: the limit (--max-steps)") == 2
    page = Path("r.html").read_text()
    assert page.count("log-likelihood of held-out rows") == 3
    assert page.count("weight 0.50, ") == page.count('alt="ELBO"') == 2
    estimator = TableModel.load(here / "model.safetensors").estimator
    assert list(estimator.members_) == ["bnn", "trees"]
    assert estimator.noise_factor_ == 0.5, "the new fit has the factor of the first"
    assert "noise variances of all models times 0.50, chosen by the same rows" in done.stdout
    assert "factor of all noise variances" in page
    assert len(estimator.members_["bnn"].network_.inducing_points) == 60, "all rows"
    done = run("predict", "model.safetensors", "t.csv", "--out", "p.csv")
    assert done.exit_code == 0, done.stderr
    assert len(pd.read_csv("p.csv")) == 60
    done = run("export", "model.safetensors", "--to", "torch", "--out", "model.pt2")
    assert done.exit_code == 0, done.stderr
    table = pd.read_csv("t.csv").drop(columns=target)
    wanted = estimator.predict(table) if target == "price" else estimator.predict_proba(table)
    found = torch.export.load("model.pt2").module()(torch.from_numpy(estimator.schema_.encode(table)))[0]
    np.testing.assert_allclose(found.detach(), wanted, rtol=1e-5)


def test_another_order_of_columns_is_told_once(model):
    change()[["price", "colour", "size", NASTY]].to_csv("new.csv", index=False)
    done = run("predict", model, "new.csv", "--out", "p.csv")
    assert done.exit_code == 0
    assert done.stderr.startswith("inducing predict: warning: columns 'colour', 'size' are in another order")
    assert len(done.stderr.splitlines()) == 1


def test_categories_never_seen_are_told(model):
    change(colour=["green"] * 3 + ["red"] * 57).to_csv("new.csv", index=False)
    done = run("predict", model, "new.csv", "--out", "p.csv")
    assert done.exit_code == 0
    assert done.stderr.startswith("inducing predict: warning: column 'colour': 3 rows")
    assert "'green'" in done.stderr


def test_predictions_are_printed(model):
    done = run("predict", model, "t.csv")
    assert done.stdout.splitlines()[0].startswith("price_mean,price_std,")
    assert len(done.stdout.splitlines()) == 61
    assert run("predict", model, "t.csv", "--out", "-").stdout == done.stdout


@pytest.mark.parametrize(("table", "code"), [("t.csv", 0), ("none.csv", 2), ("bad.parquet", 2)])
def test_a_bar_is_for_terminals(table, code, model, monkeypatch):
    (model.parent / "bad.parquet").write_bytes(b"nothing")
    monkeypatch.setenv("FORCE_COLOR", "1")
    done = run("predict", model, table, "--out", "p.csv")
    assert done.exit_code == code
    if code == 0:
        assert "60/60" in done.stderr
    else:
        assert f"inducing predict: {table} {'does not exist' if table == 'none.csv' else 'is not a '}" in done.stderr


def test_export(model, monkeypatch):
    # quantiles take most of the time, and are tested elsewhere
    monkeypatch.setattr("inducing.prediction.module.DIVISIONS", 1)
    done = run("export", model, "--out", "served.onnx", "--quantile", 0.5)
    assert (done.exit_code, done.stdout) == (0, "model: served.onnx\n"), done.stderr
    session = onnxruntime.InferenceSession("served.onnx", providers=["CPUExecutionProvider"])
    described = session.get_modelmeta().custom_metadata_map
    assert json.loads(described["targets"]) == ["price"]
    estimator = inducing.load(model)["estimator"]
    rows = estimator.schema_.encode(TABLE[list(INPUTS)]) if estimator.schema_ else TABLE[list(INPUTS)].to_numpy(float)
    (mean,) = session.run(["mean"], {"x": rows})
    np.testing.assert_allclose(mean, estimator.predict(TABLE[list(INPUTS)]), rtol=1e-5)


def test_predictions_are_compressed_by_the_name_of_the_file(model):
    run("predict", model, "t.csv", "--out", "plain.csv")
    run("predict", model, "t.csv", "--out", "small.csv.gz")
    assert gzip.decompress(Path("small.csv.gz").read_bytes()) == Path("plain.csv").read_bytes()


def test_the_model_is_saved_before_the_scores(here, monkeypatch):
    def fail(*arguments):
        raise MemoryError("no scores")

    monkeypatch.setattr(fitting, "score_fit", fail)
    assert isinstance(run("fit", "t.csv", "--target", "price", "--max-steps", 2).exception, MemoryError)
    assert len(inducing.load("model.safetensors")["estimator"].history_) == 2
