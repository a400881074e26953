"""The command `inducing`, also as `python -m inducing`."""

import sys

from inducing.extras import require


def main() -> None:
    """Run the command line."""
    try:
        require("typer")
        require("rich")
    except ImportError as error:
        sys.exit(str(error))
    from inducing.cli import app

    app(prog_name="inducing")


if __name__ == "__main__":
    main()
