"""Tables in chunks: the same columns and nearly the same model as in memory, and the same numbers after an interruption."""

import os
import signal

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

import inducing
from benchmarks.stream_fit import measure, write_table
from inducing.cli import app
from inducing.estimators import architectures
from inducing.inference.row_file import RowFile
from inducing.tables import sampling, streaming
from inducing.tables.fitting import fit_problem, make_estimator
from inducing.tables.problem import make_problem
from inducing.tables.reading import read_table
from inducing.tables.report import report_page
from inducing.tables.sampling import is_streamed, sample_table
from inducing.tables.streaming import TableStream

ROWS = 1500


def make_rows(rows=ROWS):
    """Numbers, missing values, dates, text with few and with many levels, row numbers, and text that looks like numbers."""
    random = np.random.default_rng(0)
    table = pd.DataFrame({"id": random.permutation(rows), "size": random.normal(50, 20, rows).round(2)})
    table["day"] = (pd.Timestamp("2020-01-01") + pd.to_timedelta(random.integers(0, 900, rows), unit="D")).strftime(
        "%Y-%m-%d"
    )
    table["colour"] = random.choice(["red", "blue"], rows)
    table["shop"] = [f"shop {number}" for number in random.integers(0, 30, rows)]
    table["code"] = ["A1" if number > 1400 else "07" for number in range(rows)]
    level = table["shop"].str[5:].astype(int)
    noise = random.normal(0, 3, rows)
    table["price"] = (3 * table["size"] + 40 * (table["colour"] == "red") + level + noise).round(2)
    table.loc[random.random(rows) < 0.05, "size"] = np.nan
    table["kind"] = np.where(table["price"] > 170, "dear", "cheap")
    table.loc[rows - 3, "kind"] = "rare"
    return table


@pytest.fixture
def here(tmp_path, monkeypatch):
    """Samples of 1,200 rows, chunks of 200, and small networks."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(architectures, "HIDDEN", (10, 10))
    monkeypatch.setattr(architectures, "INDUCING_FOR_STAGES", 20)
    monkeypatch.setattr("inducing.estimators.base.ELBO_SAMPLES", 2)
    for task in ("regression", "classification"):
        monkeypatch.setattr(f"inducing.tables.fitting.{task}_baselines", lambda *_: {})
    monkeypatch.setattr(sampling, "SAMPLE_ROWS", 1200)
    monkeypatch.setattr(sampling, "CHUNK_ROWS", 200)
    monkeypatch.setattr(streaming, "CHUNK_ROWS", 200)
    make_rows().to_csv("t.csv", index=False)
    return tmp_path


def run(*arguments):
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def fit(table="t.csv", *options, steps=20, target="price", stream="always"):
    excluded = "kind" if target == "price" else "price"
    given = ("--target", target, "--exclude", excluded, "--max-steps", steps, "--stream", stream)
    return run("fit", table, *given, *options)


def test_a_sample_of_all_rows_is_the_table(here):
    sample = sample_table(here / "t.csv", rows=ROWS)
    assert sample.num_rows == ROWS
    pd.testing.assert_frame_equal(sample.table, read_table("t.csv"), check_index_type=False)


@pytest.mark.parametrize("suffix", [".csv", ".csv.gz", ".parquet"])
def test_a_sample_keeps_the_numbers_of_its_rows_and_every_class(suffix, here):
    table, path = make_rows(), here / f"u{suffix}"
    table.to_parquet(path) if suffix == ".parquet" else table.to_csv(path, index=False)
    found, num_rows = sample_table(path, ["kind"], rows=300)
    assert (len(found), num_rows) == (300, ROWS)
    assert found.index.is_monotonic_increasing
    assert found["price"].tolist() == table["price"][found.index].tolist()
    assert set(found["kind"]) == {"dear", "cheap", "rare"}
    assert found.index.to_numpy().mean() == pytest.approx(ROWS / 2, rel=0.15)
    pd.testing.assert_frame_equal(found, sample_table(path, ["kind"], rows=300).table)


def test_large_files_are_streamed(here, monkeypatch):
    make_rows().to_parquet("t.parquet")
    for name in ("t.csv", "t.parquet"):
        assert [is_streamed(here / name, stream) for stream in ("auto", "always", "never")] == [False, True, False]
        monkeypatch.setattr(sampling, "STREAM_BYTES", 10_000)
        assert [is_streamed(here / name, stream) for stream in ("auto", "always", "never")] == [True, True, False]
        monkeypatch.undo()
    # refused later, with the reason
    assert not is_streamed(here / "absent.csv", "auto")


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:columns that are left out")
def test_the_schema_and_the_quality_are_those_of_a_fit_in_memory(here, monkeypatch):
    monkeypatch.setattr(sampling, "SAMPLE_ROWS", ROWS)
    table = make_rows().drop(columns="kind")
    problem = make_problem(table, ["price"])
    sampled, num_rows = sample_table(here / "t.csv", ["price"])
    again = make_problem(sampled, ["price"], exclude=["kind"], num_rows=num_rows)
    assert again.encoded.schema == problem.encoded.schema
    stream = TableStream(here / "t.csv", num_rows, here / "folder")
    whole, streamed = (
        fit_problem(make_estimator("bnn", given, max_steps=500, random_state=0), given, rows)
        for given, rows in ((problem, None), (again, stream))
    )
    assert "1350 training rows" in report_page(streamed, "t.csv").blocks[0]
    ours, theirs = streamed.scores["BNNRegressor"], whole.scores["BNNRegressor"]
    assert ours["log-likelihood"] == pytest.approx(theirs["log-likelihood"], abs=0.3)
    np.testing.assert_array_equal(streamed.y_test, whole.y_test)
    assert streamed.num_train == whole.num_train == 1350
    assert streamed.estimator.network_.num_inducing == whole.estimator.network_.num_inducing


def test_the_command_says_what_it_does_and_leaves_nothing_behind(here):
    done = fit()
    assert done.exit_code == 0, done.stderr
    for part in (
        "t.csv is streamed: a sample of 1200 of its 1500 rows describes the columns",
        "1380 training rows, 120 test rows",
        "row numbers",
        "text, 30 levels",
        "BNNRegressor",
    ):
        assert part in done.stdout
    assert sorted(path.name for path in here.iterdir()) == ["model.safetensors", "t.csv"]
    done = run("predict", "model.safetensors", "t.csv", "--out", "p.csv")
    assert done.exit_code == 0, done.stderr


@pytest.mark.parametrize(
    "options", [("--model", "dgp"), ("--test-fraction", 0), ("--refit",)], ids=["dgp", "no test", "refit"]
)
def test_classes_and_other_options(options, here):
    done = fit("t.csv", *options, steps=10, target="kind")
    assert done.exit_code == 0, done.stderr
    assert sorted(path.name for path in here.iterdir()) == ["model.safetensors", "t.csv"]
    estimator = inducing.load("model.safetensors")["estimator"]
    assert estimator.classes_.tolist() == ["cheap", "dear", "rare"]
    assert np.isfinite(estimator.elbo_)


@pytest.mark.parametrize("stage", ["a-plain-network", pytest.param("temperature-0.3", marks=pytest.mark.slow)])
def test_an_interrupted_run_continues_with_the_same_numbers(stage, here, monkeypatch):
    assert fit(steps=40).exit_code == 0
    expected = inducing.load("model.safetensors")["estimator"].predict(make_rows().drop(columns=["price", "kind"]))
    os.unlink("model.safetensors")
    read, folder = RowFile.since, here / "model.safetensors.stream"

    def interrupted(self, *arguments):
        for number, batch in enumerate(read(self, *arguments)):
            if number == 5 and any(folder.glob(f"training/*/{stage}")):
                os.kill(os.getpid(), signal.SIGINT)
            yield batch

    with monkeypatch.context() as patch:
        patch.setattr(RowFile, "since", interrupted)
        stopped = fit(steps=40)
    assert stopped.exit_code == 130
    assert "the same command continues" in stopped.stderr
    assert not (here / "model.safetensors").exists()
    with monkeypatch.context() as patch:
        patch.setattr(RowFile, "write", lambda *_: pytest.fail("the rows are encoded already"))
        done = fit(steps=40)
    assert done.exit_code == 0, done.stderr
    found = inducing.load("model.safetensors")["estimator"].predict(make_rows().drop(columns=["price", "kind"]))
    np.testing.assert_array_equal(found, expected)
    assert not folder.exists()


def test_a_second_fit_to_all_rows_continues_too(here, monkeypatch):
    """The rows and checkpoints of both fits are there when the second one is interrupted."""
    read, folder = RowFile.since, here / "model.safetensors.stream"

    def interrupted(self, *arguments):
        for number, batch in enumerate(read(self, *arguments)):
            if number == 1 and folder.joinpath("all", "rows").exists():
                os.kill(os.getpid(), signal.SIGINT)
            yield batch

    with monkeypatch.context() as patch:
        patch.setattr(RowFile, "since", interrupted)
        assert fit("t.csv", "--refit", steps=10).exit_code == 130
    assert inducing.load("model.safetensors"), "the model of the training rows is there"
    with monkeypatch.context() as patch:
        patch.setattr(RowFile, "write", lambda *_: pytest.fail("the rows are encoded already"))
        assert fit("t.csv", "--refit", steps=10).exit_code == 0
    assert not folder.exists()


def test_only_its_own_files_are_removed(here):
    (here / "model.safetensors.stream" / "training").mkdir(parents=True)
    (here / "model.safetensors.stream" / "notes.txt").write_text("mine")
    (here / "model.safetensors.stream" / "training" / ".rows.0123").write_text("left by a killed run")
    assert fit().exit_code == 0
    assert [path.name for path in (here / "model.safetensors.stream").iterdir()] == ["notes.txt"]


@pytest.mark.parametrize(
    ("column", "value", "message"),
    [
        ("size", "abc", "'abc'"),
        ("day", "soon", "'soon'"),
        ("price", "", "target 'price' has 1 missing value"),
        ("price", "much", "'much'"),
    ],
)
def test_a_bad_value_that_the_sample_does_not_have_is_named_with_its_line(column, value, message, here):
    sampled = sample_table(here / "t.csv", ["price"], rows=1200).table
    row = max(set(range(ROWS)) - set(sampled.index))
    table = make_rows().astype({column: object})
    table.loc[row, column] = value
    table.to_csv("t.csv", index=False)
    done = fit()
    assert done.exit_code == 2
    assert message in done.stderr
    assert f"row {row}, line {row + 2}," in done.stderr
    assert not (here / "model.safetensors").exists()


def test_a_row_with_too_many_fields_is_named_with_its_line(here):
    with open("t.csv", "a") as file:
        file.write("1,2,3,4,5,6,7,8,9,10\n")
    done = fit()
    assert done.exit_code == 2
    assert "line 1502" in done.stderr


def test_a_negative_target_on_a_log_scale_is_explained(here):
    table = make_rows()
    table["price"] = np.exp(table["size"].fillna(50) / 20).round(3)
    sampled = sample_table(here / "t.csv", ["price"], rows=1200).table
    table.loc[max(set(range(ROWS)) - set(sampled.index)), "price"] = -1.0
    table.to_csv("t.csv", index=False)
    done = fit()
    assert done.exit_code == 2
    assert "--target-transform none" in done.stderr


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--model", "auto"), "is streamed"),
        (("--model", "trees"), "is streamed"),
        (("--posterior", "optimal"), "needs all rows in memory"),
    ],
)
def test_what_cannot_be_streamed(options, message, here):
    done = fit("t.csv", *options)
    assert done.exit_code == 2
    assert message in done.stderr


def test_unknown_settings_and_empty_tables_are_refused(here):
    assert "sometimes" in fit(stream="sometimes").stderr
    make_rows()[:0].to_csv("t.csv", index=False)
    done = fit()
    assert done.exit_code == 2
    assert "no rows" in done.stderr


@pytest.mark.slow
def test_ten_million_rows_need_less_than_two_gigabytes(tmp_path):
    """Reading, encoding and some training. It takes about ten minutes, and 2 GB of disk."""
    write_table(tmp_path / "table.parquet", 10_000_000)
    assert measure(tmp_path / "table.parquet", steps=100)["peak_mb"] < 2000
