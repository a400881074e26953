"""Tables, models, options and files that the commands refuse: one line on stderr, and the exit code."""

import gzip
import os
from pathlib import Path

import numpy as np
import pytest

import inducing
from inducing.tables import fitting, predicting
from tests.cli.commands import HOLE, TABLE, change, refused, run
from tests.tables.examples import INPUTS


@pytest.mark.parametrize(
    ("table", "options", "message"),
    [
        (change(), ["--target", "cost"], "no column 'cost'"),
        (change(size=[*map(str, TABLE["size"][:-1]), "tall"]), [], "numbers and text, e.g. 'tall' in row 59"),
        (change(size=HOLE), ["--no-impute"], "Remove those rows, or leave out --no-impute."),
        (change(), ["--include", "id"], "no column 'id' to include"),
        (change(), ["--target-transform", "root"], "unknown target_transform 'root'"),
        (change(price=-TABLE["size"]), ["--target-transform", "log"], "needs positive targets"),
        (change(price=HOLE), [], "'price' has 1 missing value (first in row 7)"),
        (change(size=np.inf), [], "column 'size' has infinite values (first in row"),
        (change(price=np.inf), [], "column 'price' has infinite values (first in row 0)"),
        (change(price="dear"), [], "one class, 'dear'"),
        (change()[:0], [], "0 rows"),
        (change()[["price"]], [], "no input columns"),
        (
            change(name=[f"n{row}" for row in range(60)])[["name", "price"]],
            [],
            "no column can be used: 'name' (each row",
        ),
        (change(), ["--target", "size", "--task", "classification"], "one target"),
        (change(), ["--task", "ranking"], "unknown task 'ranking'"),
        (change(), ["--model", "mlp"], "unknown model 'mlp'"),
        (change(), ["--model", "dgp", "--prior", "neal"], "prior"),
        (change(), ["--prior", "flat"], "unknown prior 'flat'"),
        (change(), ["--posterior", "exact"], "unknown posterior 'exact'"),
        (change(), ["--likelihood", "cauchy"], "unknown likelihood 'cauchy'"),
        (change(), ["--likelihood", "poisson"], "'poisson' needs counts"),
        (change(), ["--test-fraction", "1"], "--test-fraction must be at least 0 and below 1, got 1"),
        (change(), ["--test-fraction", "0", "--report", "r.html"], "a report is about test rows"),
        (change(), ["--out", "nowhere/m.safetensors"], "no folder nowhere"),
        (change(), ["--report", "nowhere/r.html"], "no folder nowhere"),
    ],
)
def test_fit_refuses(table, options, message, here):
    table.to_csv("t.csv", index=False)
    done = run("fit", "t.csv", "--target", "price", *options)
    assert refused(done, "inducing fit: ", message), done.stderr
    assert not (here / "model.safetensors").exists()


def test_a_target_alone_is_not_numeric(here):
    """Text where numbers are asked for."""
    TABLE[["size", "kind"]].to_csv("k.csv", index=False)
    done = run("fit", "k.csv", "--target", "kind", "--likelihood", "gaussian")
    assert refused(done, "'kind' is text")


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("t.xlsx", b"", "t.xlsx is not a table"),
        ("t.csv", b"", "t.csv is not a CSV file"),
        ("t.csv", b"\x00\xff\xfe", "t.csv is not a CSV file"),
        ("t.parquet", b"size,price\n1,2\n", "t.parquet is not a Parquet file"),
        ("t.csv.gz", gzip.compress(b"size,price\n1,2\n", mtime=0)[:-9], "t.csv.gz is not a CSV file"),
        ("none.csv", None, "none.csv does not exist"),
    ],
)
@pytest.mark.parametrize("arguments", [("fit", "--target", "price"), ("predict", "m.safetensors")])
def test_what_is_no_table(arguments, name, content, message, model):
    if content is not None:
        (model.parent / name).write_bytes(content)
    assert refused(run(*arguments, name), f"inducing {arguments[0]}: {message}")


@pytest.mark.parametrize(
    "arguments", [["fit", "t.csv"], ["fit"], ["predict", "m"], ["fit", "t.csv", "--target", "p", "--max-steps", 0]]
)
def test_bad_usage_leaves_with_2(arguments, here):
    assert run(*arguments).exit_code == 2


@pytest.mark.parametrize(
    ("table", "message"),
    [
        (change().drop(columns="size"), "'size' missing"),
        (change(extra=1), "Remove the columns that are not expected (--exclude)."),
        (change().rename(columns={"size": "sise"}), "'sise' not expected (did you mean 'size'?)"),
        (change(size="large"), "row 0 holds 'large'"),
        (change(colour=1.5), "'colour' is numeric, but was text"),
        (change(size=np.inf), "column 'size' has infinite values (first in row 0)"),
        (change()[:0], "new.csv has no rows"),
    ],
)
def test_predict_refuses_tables_that_do_not_fit(table, message, model):
    """And leaves what was there."""
    (model.parent / "p.csv").write_text("old")
    table.to_csv("new.csv", index=False)
    done = run("predict", model, "new.csv", "--out", "p.csv")
    assert refused(done, "inducing predict: ", message), done.stderr
    assert (model.parent / "p.csv").read_text() == "old"
    assert not list(model.parent.glob(".p.csv*"))


def test_predict_refuses_models(model):
    content = model.read_bytes()
    model.write_bytes(content[: len(content) // 2])
    assert refused(run("predict", model, "t.csv"), "cannot be loaded")
    inducing.save(inducing.Gaussian(), model)
    assert refused(run("predict", model, "t.csv"), "a Gaussian, not an estimator")
    assert refused(run("predict", "none.safetensors", "t.csv"), "none.")
    for table in (model, "t.parquet"):
        assert refused(
            run("predict", "t.csv", table), "t.csv is not a model file. The order is: inducing predict MODEL"
        )
    assert refused(run("predict", model, "t.csv", "--out", "no/p.csv"), "no folder no")


@pytest.fixture
def read_only(monkeypatch):
    """No new files, as in a folder that is write-protected; the tests may run as root, who may write everywhere."""
    plain = os.open

    def refuse(path, flags, *rest, **options):
        if flags & os.O_EXCL:
            raise PermissionError(13, "Permission denied", str(path))
        return plain(path, flags, *rest, **options)

    monkeypatch.setattr(os, "open", refuse)


@pytest.mark.parametrize("option", ["--out", "--report"])
def test_fit_notices_a_file_that_cannot_be_written_before_training(option, here, read_only, monkeypatch):
    monkeypatch.setattr(fitting, "fit_training_rows", lambda *_: pytest.fail("a model was fitted"))
    done = run("fit", "t.csv", "--target", "price", option, "r.html")
    assert refused(done, "inducing fit: ")
    assert "Permission denied" in done.stderr


def test_predict_notices_a_file_that_cannot_be_written_first(model, read_only, monkeypatch):
    monkeypatch.setattr(predicting, "predict_table", lambda *_, **__: pytest.fail("rows were predicted"))
    done = run("predict", model, "t.csv", "--out", "p.csv")
    assert refused(done, "Permission denied")


def test_what_is_not_a_file_is_not_replaced(model):
    os.mkfifo("pipe")
    for done in (
        run("fit", "t.csv", "--target", "price", "--out", "pipe"),
        run("predict", model, "t.csv", "--out", "pipe"),
    ):
        assert done.exit_code == 2
        assert "pipe is a pipe" in done.stderr
    assert Path("pipe").is_fifo()


def test_predictions_are_csv(model):
    done = run("predict", model, "t.csv", "--out", "p.parquet")
    assert refused(done, "p.csv")


def test_internal_errors_leave_with_1(model, monkeypatch):
    def broken(*_, **__):
        raise RuntimeError("a bug")

    monkeypatch.setattr(predicting, "predict_table", broken)
    assert run("predict", model, "t.csv").exit_code == 1


def test_nothing_that_is_read_or_written_is_written_over(model):
    before = {path: path.read_bytes() for path in (Path("t.csv"), Path(model))}
    fit = ("fit", "t.csv", "--target", "price", "--max-steps", "1")
    assert refused(run(*fit, "--out", "t.csv"), "t.csv is both table and out")
    assert refused(run(*fit, "--out", "m", "--report", "./t.csv"), "t.csv is both table and report")
    assert refused(run(*fit, "--out", "r.html", "--report", "r.html"), "r.html is both out and report")
    assert refused(run("predict", model, "t.csv", "--out", "t.csv"), "t.csv is both table and out")
    assert refused(run("predict", model, "t.csv", "--out", model), "both model and out")
    assert refused(run("predict", model, model), "both model and table")
    assert {path: path.read_bytes() for path in before} == before


def test_a_report_is_html(here):
    done = run("fit", "t.csv", "--target", "price", "--report", "r.pdf")
    assert refused(done, "r.html")


def test_classes_that_are_numbers_are_noticed_before_training(here):
    TABLE[[*INPUTS]].assign(price=range(1000, 1000 + len(TABLE))).to_csv("t.csv", index=False)
    done = run("fit", "t.csv", "--target", "price", "--task", "classification", "--max-steps", "1")
    assert refused(done, "no class of 'price'")


def test_export_refuses(model):
    assert refused(run("export", model, "--to", "tflite"), "tflite", "onnx")
    assert refused(run("export", model, "--to", "torch", "--out", "m.onnx"), "m.pt2")
    assert refused(run("export", model, "--quantile", 5), "between 0 and 1")
    assert refused(run("export", "t.csv"), "t.csv")
    assert not Path("m.onnx").exists()
