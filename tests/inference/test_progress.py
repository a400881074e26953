from importlib import util

from inducing.inference import progress
from inducing.inference.progress import progress_bar


def test_the_bar_shows_its_text(capsys):
    with progress_bar("my fit", 3, show=True) as update_bar:
        for step in (1, 2, 3):
            update_bar(step, f"ELBO {step}")
    shown = capsys.readouterr().out
    assert "my fit" in shown
    assert "3/3" in shown
    assert "ELBO 3" in shown


def test_there_is_no_bar_if_not_wanted_or_without_rich(capsys, monkeypatch):
    with progress_bar("my fit", 3, show=False) as update_bar:
        update_bar(1, "")
    monkeypatch.setattr(progress, "find_spec", lambda name: None if name == "rich" else util.find_spec(name))
    with progress_bar("my fit", 3, show=True) as update_bar:
        update_bar(1, "")
    assert capsys.readouterr().out == ""
