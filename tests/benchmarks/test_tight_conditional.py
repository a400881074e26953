"""The comparison of the standard and the tight-conditional ELBO runs, and its page has a row for each dataset."""

from benchmarks import tight_conditional


def test_two_steps_with_each_bound(uci_folder, monkeypatch):
    monkeypatch.setattr(tight_conditional, "TIMED_STEPS", 1)
    monkeypatch.setitem(tight_conditional.DATASETS, "yacht", (2, 100))
    found = {kind: tight_conditional.run("yacht", kind) for kind in ("prior", "tight")}
    for result in found.values():
        assert result["tight-conditional ELBO"] > result["ELBO"]
    found["step_milliseconds"] = tight_conditional.step_times("yacht")
    row = tight_conditional.page({"yacht": found}).splitlines()[-3]
    assert row.startswith("| yacht | ")
    assert row.count("|") == 10
    assert "2.53 (local)" in row
