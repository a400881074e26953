import io
from importlib import util

from inducing.inference import progress
from inducing.inference.progress import Lines, progress_bar


def test_the_bar_shows_its_text(monkeypatch):
    """In a terminal."""
    terminal = io.StringIO()
    monkeypatch.setattr("sys.stdout", terminal)
    monkeypatch.setenv("FORCE_COLOR", "1")
    with progress_bar("my fit", 3, show=True) as update_bar:
        for step in (1, 2, 3):
            update_bar(step, f"ELBO {step}")
    shown = terminal.getvalue()
    assert "my fit" in shown
    assert "3/3" in shown
    assert "ELBO 3" in shown
    assert "per step" not in shown


def test_elsewhere_there_are_lines(capsys):
    with progress_bar("my fit", 3, show=True) as update_bar:
        for step in (1, 2, 3):
            update_bar(step, f"ELBO {step}")
    (line,) = capsys.readouterr().out.splitlines()
    assert line.startswith("my fit 3/3 ELBO 3, ")
    assert line.endswith(" s per step, 0 s")


def test_a_line_every_five_seconds(capsys):
    now = 0.0
    lines = Lines("my fit", 110, 10, clock=lambda: now)
    for step in range(11, 31):
        now += 0.75
        lines.update(step, f"ELBO {step}")
    lines.finish()
    assert capsys.readouterr().out.splitlines() == [
        "my fit 17/110 ELBO 17, 0.75 s per step, 70 s left",
        "my fit 24/110 ELBO 24, 0.75 s per step, 64 s left",
        "my fit 30/110 ELBO 30, 0.75 s per step, 15 s",
    ]


def test_lines_of_a_long_run_are_further_apart(capsys):
    now = 0.0
    lines = Lines("my fit", 10_800, clock=lambda: now)
    for step in range(1, 10_801):
        now += 1.0
        lines.update(step, "")
    seconds = [int(line.split("/")[0].removeprefix("my fit ")) for line in capsys.readouterr().out.splitlines()]
    assert seconds[:3] == [5, 10, 15]
    assert 180 <= seconds[-1] - seconds[-2] <= 216
    assert 200 <= len(seconds) <= 300


def test_nothing_is_shown_if_not_wanted_or_without_rich(capsys, monkeypatch):
    with progress_bar("my fit", 3, show=False) as update_bar:
        update_bar(1, "")
    monkeypatch.setattr(progress, "find_spec", lambda name: None if name == "rich" else util.find_spec(name))
    with progress_bar("my fit", 3, show=True) as update_bar:
        update_bar(1, "")
    assert capsys.readouterr().out == ""
