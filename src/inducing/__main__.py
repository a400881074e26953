"""`python -m inducing` is the command `inducing`."""

from inducing.cli import app

if __name__ == "__main__":
    app(prog_name="inducing")
