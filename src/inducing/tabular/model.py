"""What a model file holds beside the estimator: the names of its targets, and the columns that are not inputs."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from inducing.data.columns import Column, TableError, quoted
from inducing.estimators.base import NetworkEstimator
from inducing.saving import load, save


@dataclass(frozen=True, eq=False)
class TableModel:
    """An estimator for tables.

    Arguments:
        estimator: A fitted estimator.
        targets: The names of its targets.
        excluded: Columns that tables may have, and that are not inputs.
    """

    estimator: NetworkEstimator
    targets: tuple[str, ...]
    excluded: tuple[str, ...] = ()

    def save(self, path: str | Path) -> None:
        """Write the model file; `inducing.load` gives a dictionary with the estimator under "estimator"."""
        contents = {"estimator": self.estimator, "targets": list(self.targets), "excluded": list(self.excluded)}
        save(contents, path)

    @classmethod
    def load(cls, path: str | Path) -> TableModel:
        """Read a file that `inducing fit` wrote, or that `inducing.save` wrote of a fitted estimator."""
        contents: Any = load(path)
        if isinstance(contents, NetworkEstimator):
            return cls(contents, default_names(contents))
        if not (isinstance(contents, dict) and isinstance(contents.get("estimator"), NetworkEstimator)):
            raise ValueError(
                f"{path} holds no estimator, but a {type(contents).__name__}; `inducing fit` makes such files"
            )
        estimator = contents["estimator"]
        names = {key: contents.get(key, ()) for key in ("targets", "excluded")}
        for key, values in names.items():
            if not (isinstance(values, list | tuple) and all(isinstance(value, str) for value in values)):
                raise ValueError(f"{path} has no names of columns under {key!r}")
        if len(names["targets"]) != len(default_names(estimator)):
            raise ValueError(f"{path} names {len(names['targets'])} targets of {len(default_names(estimator))}")
        return cls(estimator, tuple(names["targets"]), tuple(names["excluded"]))

    def inputs(self, table: Any) -> Any:
        """The table without its targets and without the columns that were excluded."""
        known = set(self.columns or ())
        left_out = [name for name in (*self.targets, *self.excluded) if name in table.columns and name not in known]
        return table.drop(columns=left_out)

    @property
    def columns(self) -> tuple[str, ...] | None:
        """The names of the inputs, where the estimator knows them."""
        names = getattr(self.estimator, "feature_names_in_", None)
        return None if names is None else tuple(map(str, names))

    @property
    def text_columns(self) -> tuple[str, ...]:
        """Categorical inputs. A chunk of a CSV file might show them as numbers, or as true and false."""
        return tuple(column.name for column in self.schema_columns if column.kind == "categorical")

    @property
    def schema_columns(self) -> tuple[Column, ...]:
        """The inputs, where the estimator has a schema."""
        schema = self.estimator.schema_
        return () if schema is None else schema.columns


def default_names(estimator: NetworkEstimator) -> tuple[str, ...]:
    """Names for the targets of an estimator that knows none: y, or y1, y2, ..."""
    targets = getattr(estimator, "targets_", None)
    number = 1 if targets is None else len(targets.mean)
    return ("y",) if number == 1 else tuple(f"y{target}" for target in range(1, number + 1))


def check_free(names: tuple[str, ...], taken: list[str]) -> None:
    """Refuse columns to be kept that would stand twice in the predictions."""
    twice = [name for name in names if name in taken]
    if twice:
        raise TableError(
            f"the predictions have columns of the names {quoted(twice)} themselves; rename them in the table"
        )
