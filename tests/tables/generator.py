"""Tables with columns of all kinds, made from a seed."""

from typing import NamedTuple

import numpy as np
import pandas as pd

ROWS = (50, 120, 300, 800, 2000, 5000, 20_000)
SIGNALS = ("linear", "curved", "skewed", "outliers", "noise", "classes")


class Generated(NamedTuple):
    """A table and what it was made from."""

    table: pd.DataFrame
    signal: str
    levels: int


def generate(seed: int, rows: int | None = None, signal: str | None = None, levels: int | None = None) -> Generated:
    """Make a table with a target named "y". What is not given is drawn.

    Arguments:
        seed: Seed of the table.
        rows: Number of rows.
        signal: One of `SIGNALS`: how the target depends on the columns.
        levels: Levels of a text column. 0: no such column.
    """
    random = np.random.default_rng(seed)
    rows = int(random.choice(ROWS)) if rows is None else rows
    signal = str(random.choice(SIGNALS)) if signal is None else signal
    most = min(1000, rows // 3)
    levels = int(random.choice([0, 5, min(60, most), most])) if levels is None else levels
    columns: dict[str, object] = {"id": np.arange(1, rows + 1)} if random.random() < 0.5 else {}
    effect = np.zeros(rows)
    for number in range(random.integers(1, 6)):
        values = random.normal(size=rows)
        kind = random.choice(["plain", "skewed", "outliers", "unit", "missing", "thousands"])
        weight = random.choice([0.0, 0.5, 1.0])
        effect += weight * (values if signal != "curved" else np.sin(2 * values) + 0.3 * values**2)
        columns[f"{kind}{number}"] = _write(values, kind, random)
    if levels:
        level = (levels * random.random(rows) ** random.choice([1.0, 2.0])).astype(int)
        effect += random.normal(0, 0.7, levels)[level]
        columns["level"] = [f"level {each:04d}" for each in level]
    if random.random() < 0.5:
        colour = random.integers(0, 4, rows)
        effect += random.normal(0, 0.5, 4)[colour]
        columns["colour"] = np.array(["red", "green", "blue", None], dtype=object)[colour]
    if random.random() < 0.5:
        days = random.integers(0, 1500, rows)
        effect += 0.5 * np.cos(2 * np.pi * days / 365.25) + days / 1500
        columns["when"] = (pd.Timestamp("2019-01-01") + pd.to_timedelta(days, unit="D")).strftime("%Y-%m-%d")
    columns["unrelated"] = random.normal(size=rows)
    if random.random() < 0.3:
        columns["same"] = "same"
    return Generated(pd.DataFrame(columns).assign(y=_target(effect, signal, random)), signal, levels)


def _write(values: np.ndarray, kind: str, random: np.random.Generator) -> object:
    if kind == "skewed":
        return np.exp(values)
    if kind == "outliers":
        return np.where(random.random(len(values)) < 0.005, 30 * values, values)
    if kind == "unit":
        return [f"{value:.3f} kg" for value in 50 + 10 * values]
    if kind == "thousands":
        return [f"${value:,.2f}" for value in 5000 + 1000 * values]
    if kind == "missing":
        return np.where(random.random(len(values)) < random.uniform(0.01, 0.3), np.nan, values)
    return values


def _target(effect: np.ndarray, signal: str, random: np.random.Generator) -> np.ndarray:
    noise = random.choice([0.2, 0.5, 1.0]) * random.normal(size=len(effect))
    if signal == "noise":
        return random.normal(size=len(effect))
    if signal == "skewed":
        return np.exp(3 + effect / 2 + noise / 2)
    if signal == "outliers":
        return effect + np.where(random.random(len(effect)) < 0.02, 10 * noise, noise)
    if signal == "classes":
        return np.array(["low", "mid", "top"])[np.digitize(effect + noise - np.median(effect), [-0.7, 0.7])]
    return effect + noise
