"""The comparison of mixtures with their components runs, and its page has a row for each dataset."""

from benchmarks import mixtures


def test_one_dataset_in_short(uci_folder, monkeypatch):
    for name in mixtures.SETTINGS:
        monkeypatch.setitem(mixtures.SETTINGS, name, 4)
    monkeypatch.setattr(mixtures, "COMPONENTS", 2)
    found = mixtures.run("yacht")
    assert len(found["elbos"]) == len(found["weights"]) == 2
    row = mixtures.page({"yacht": found}).splitlines()[-1]
    assert row.startswith("| yacht | ")
    assert row.count("|") == len(mixtures.HEADINGS) + 1
