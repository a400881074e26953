"""`python -m inducing` is the command `inducing`."""

from inducing.cli import app

app(prog_name="inducing")
