"""The comparison of bounds runs, and its pages and figure have all posteriors."""

import json

from benchmarks import evidence


def test_one_dataset_in_short(monkeypatch, tmp_path):
    short = {"seeds": 2, "num_steps": 2, "elbo_samples": 5, "importance_samples": 30, "num_temperatures": 5}
    for name, value in short.items():
        monkeypatch.setitem(evidence.SETTINGS, name, value)
    monkeypatch.setattr(evidence, "FIGURE", tmp_path / "evidence.png")
    monkeypatch.setattr(evidence, "DATASETS", 1)
    found = evidence.run("toy", 0.05, 0)
    rows = evidence.page([found]).splitlines()[-3:]
    assert [row.split(" | ")[4] for row in rows] == list(evidence.POSTERIORS)
    assert all(len(found[posterior]["elbos"]) == 2 for posterior in evidence.POSTERIORS)
    evidence.check_convergence(found)
    rows = evidence.page([found]).splitlines()[-3:]
    assert [row.split(" | ")[3] for row in rows] == list(evidence.POSTERIORS)
    evidence.draw([found])
    assert evidence.FIGURE.exists()


def test_pages_are_those_of_the_stored_results():
    results = json.loads(evidence.RESULTS.read_text())
    assert evidence.PAGE.read_text() == evidence.page(results)
    assert evidence.SUMMARY.read_text() == evidence.summary(results)
