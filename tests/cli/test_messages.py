"""Exit codes, and one line for each message."""

import warnings

import pytest
import typer

from inducing.cli.messages import one_line_errors, one_line_warnings


def left_with(error, capsys, **arguments):
    with pytest.raises(typer.Exit) as left, one_line_errors("fit", **arguments):
        raise error
    return left.value.exit_code, capsys.readouterr().err


def test_bad_data_leave_with_2(capsys):
    assert left_with(ValueError("wrong:\n - this\n - that"), capsys) == (2, "inducing fit: wrong: - this - that\n")
    assert left_with(OSError("No space left"), capsys) == (2, "inducing fit: No space left\n")
    assert left_with(ImportError("Parquet is an extra"), capsys) == (2, "inducing fit: Parquet is an extra\n")


def test_interrupts_leave_with_130(capsys):
    assert left_with(KeyboardInterrupt(), capsys) == (130, "inducing fit: interrupted\n")
    assert left_with(KeyboardInterrupt(), capsys, interrupted="go on") == (130, "inducing fit: go on\n")
    assert left_with(KeyboardInterrupt("after step 3"), capsys) == (130, "inducing fit: after step 3\n")


@pytest.mark.parametrize("error", [RuntimeError, KeyError, BrokenPipeError])
def test_errors_of_our_own_are_not_hidden(error):
    with pytest.raises(error), one_line_errors("fit"):
        raise error


def test_each_warning_is_shown_once(capsys):
    with one_line_warnings("fit"):
        for _ in range(2):
            warnings.warn("odd\n  columns", UserWarning, stacklevel=1)
        warnings.warn("others", UserWarning, stacklevel=1)
    assert capsys.readouterr().err == "inducing fit: warning: odd columns\ninducing fit: warning: others\n"
    with pytest.warns(UserWarning, match="as before"):
        warnings.warn("as before", UserWarning, stacklevel=1)
