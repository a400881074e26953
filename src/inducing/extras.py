"""Optional packages, and the extra of `inducing` that installs each of them."""

from __future__ import annotations

from importlib import import_module
from types import ModuleType

EXTRAS = {
    "pandas": "tables",
    "sklearn": "tables",
    "pyarrow": "parquet",
    "matplotlib": "plots",
    "joblib": "experiments",
    "pooch": "experiments",
    "rich": "cli",
    "typer": "cli",
    "distributed": "dask",
    "tensorboard": "tensorboard",
    "onnx": "onnx",
    "onnxscript": "onnx",
    "onnxruntime": "onnx",
    "botorch": "botorch",
    "skpro": "skpro",
}


def require(package: str) -> ModuleType:
    """Import an optional package.

    If the package is missing, the ImportError names the command that installs it. Call this function before the import
    statement, inside the function that uses the package.

    Arguments:
        package: Import name of the package, e.g. "sklearn".
    """
    try:
        return import_module(package)
    except ModuleNotFoundError as error:
        if error.name != package:
            # the package is installed, but one of its dependencies is not
            raise
        line = f'pip install "inducing[{EXTRAS[package]}]"'
        raise ImportError(f"the package {package} is not installed. Install it with {line}", name=package) from None
