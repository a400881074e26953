"""Models of `inducing` in other packages. Each module needs an extra, e.g. ``pip install "inducing[botorch]"``."""
