"""A sweep for processes that are killed."""

import torch

from inducing.cli import app


def reproduce(folder):
    """Run `inducing reproduce` in this process."""
    torch.set_num_threads(1)
    app(["reproduce", "linear", "--preset", "smoke", "--out", str(folder)], standalone_mode=False)
