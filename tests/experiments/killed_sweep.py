"""A sweep for processes that are killed."""

import torch

from inducing.cli import app


def reproduce(folder, jobs=1):
    """Run `inducing reproduce` in this process."""
    torch.set_num_threads(1)
    options = ["--preset", "smoke", "--out", str(folder), "--jobs", str(jobs)]
    app(["reproduce", "linear", *options], standalone_mode=False)
