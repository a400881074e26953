import json

import pytest

from inducing.experiments.engine.store import Store, config_key, finished_run
from tests import processes


def add_many(path, worker):
    for number in range(10):
        Store(path).add(finished_run({"worker": worker, "number": number}, {"elbo_per_datapoint": number / 10}, 0.1))


def test_a_line_holds_everything_about_a_run(tmp_path):
    store = Store(tmp_path / "new" / "toy.jsonl")
    store.add(finished_run({"dataset": "toy", "split": 0}, {"rmse": 0.5}, 1.234))
    (line,) = store.path.read_text().splitlines()
    result = json.loads(line)
    assert result["key"] == config_key({"split": 0, "dataset": "toy"}), "the order of the keys does not matter"
    assert result["config"] == {"dataset": "toy", "split": 0}
    assert result["metrics"] == {"rmse": 0.5}
    assert {"version", "commit", "finished", "seconds"} <= set(result)
    assert result["seed"] == 0


def test_a_run_of_another_machine_says_so(tmp_path):
    store = Store(tmp_path / "toy.jsonl")
    store.add(finished_run({"split": 0}, {}, 1.0) | {"version": "0.0.9", "commit": "abc"})
    (result,) = store.results().values()
    assert (result["version"], result["commit"]) == ("0.0.9", "abc")


def test_the_key_is_the_same_on_every_machine():
    assert config_key({"a": 1, "b": [0.1, "x"]}) == "f70a6722f07a5c22"


def test_a_new_field_that_is_none_changes_no_key():
    assert config_key({"a": 1, "b": None}) == config_key({"a": 1})


def test_the_same_configuration_is_replaced(tmp_path):
    store = Store(tmp_path / "toy.jsonl")
    for value in (1, 2):
        store.add(finished_run({"split": 0}, {"rmse": value}, 0.0))
    (result,) = store.results().values()
    assert result["metrics"]["rmse"] == 2


def test_two_processes_may_write_at_once(tmp_path):
    path = tmp_path / "toy.jsonl"
    workers = [processes.start(add_many, path, number) for number in range(2)]
    assert [processes.wait(worker) for worker in workers] == [0, 0]
    assert len(Store(path).results()) == 20


def test_a_foreign_line_is_named(tmp_path):
    path = tmp_path / "toy.jsonl"
    path.write_text('{"key": "a"}\nhello\n')
    with pytest.raises(ValueError, match=r"line 2"):
        Store(path).results()


def test_no_file_is_no_results(tmp_path):
    assert Store(tmp_path / "toy.jsonl").results() == {}
