"""Running commands on a small table."""

from typer.testing import CliRunner

from inducing.cli import app
from tests import processes
from tests.tables.examples import INPUTS, make_table

TABLE = make_table()
# a column with a missing value
HOLE = TABLE["size"].mask(TABLE.index == 7)


def command(*arguments):
    """The real command in a process of its own."""
    return processes.run(processes.command, *arguments)


def run(*arguments):
    """The same in this process, where it need not import everything anew."""
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def refused(done, *keywords):
    """One line on stderr with these words, and exit code 2."""
    code = done.exit_code if hasattr(done, "exit_code") else done.returncode
    lines = done.stderr.splitlines()
    return code == 2 and len(lines) == 1 and all(keyword in lines[0] for keyword in ("inducing ", *keywords))


def change(**columns):
    return TABLE[[*INPUTS, "price"]].assign(**columns)
