"""A sweep for processes that are killed."""

from tests import processes


def reproduce(folder, *options):
    """Run `inducing reproduce` in this process."""
    processes.command("reproduce", "linear", "--preset", "smoke", "--out", folder, *options)
