"""The ledger of the paper's claims: each claim of ``claims.toml``, and whether the stored runs agree."""

from __future__ import annotations

import tomllib
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib import resources
from typing import Any, Literal, NamedTuple

import numpy as np

from inducing import experiments
from inducing.experiments.engine.comparison import (
    ELBO,
    NOT_COUNTED,
    TEST,
    TOLERANCE,
    Measure,
    layer_variance,
    over_splits,
)
from inducing.experiments.engine.store import Result
from inducing.experiments.epoch_times import RATIO
from inducing.experiments.images import GUESSING
from inducing.experiments.paper import published
from inducing.experiments.toy import distances_from_hmc
from inducing.pages import Cell, Page, Style, Table

Verdict = Literal["held", "not held", "undecided", "not tested"]
STYLES: dict[Verdict, Style] = {"held": "good", "not held": "bad", "undecided": "neutral", "not tested": "neutral"}
MEASURES = {
    measure.heading: measure
    for measure in (
        ELBO,
        TEST,
        layer_variance(0),
        layer_variance(2),
        Measure("std_outside", "standard deviation outside the data", nats=False),
        Measure("accuracy", "accuracy", nats=False),
        Measure("ece", "ECE", higher_is_better=False, nats=False),
        Measure("entropy_ratio", "entropy ratio", higher_is_better=False, nats=False),
    )
}
# the fields of a configuration that tell cells apart; settings that were chosen for a posterior, such as its steps, do not
CELL = ("dataset", "prior", "depth", "width", "num_inducing", "recipe", "posterior")
INTRODUCTION = (
    "Made by `inducing report` from the stored runs. The table lists each claim of the paper that an experiment can "
    "test, in our words. In a cell, runs have the same data, prior, size and recipe. One posterior is ahead of "
    "another if the mean difference over common splits is outside of its 95 % interval and larger than 0.02 (1 "
    "percentage point of accuracy, 0.005 of the ECE; 0.1 or 1 where the paper claims a large margin). Where there is "
    "only one split, there is no interval; claims about UCI data need three. A claim is undecided if it depends on "
    "cells in which neither is ahead. Runs that are out of date, or do not pass the check of convergence of their "
    "preset, are left out. The presets of `toy`, `compositional-bnn`, `compositional-dgp` and `cifar10` have no such "
    "check; those of `cifar10` are far shorter than the paper's. A verdict is about the cells that have runs, often far "
    "fewer than the paper's."
)


class Ruling(NamedTuple):
    """What the stored runs say about a claim, and why."""

    verdict: Verdict
    why: str


class Claim(NamedTuple):
    """A claim of the paper.

    Arguments:
        text: The claim, in our words.
        where: Its place in the paper.
        experiment: The experiment whose runs test it.
        test: The name of the function that tests it, in `TESTS`.
        leads: Arguments of that function, if it is `leads`.
    """

    text: str
    where: str
    experiment: str
    test: str = "leads"
    leads: Mapping[str, Any] | None = None

    def judge(self, results: Sequence[Result]) -> Ruling:
        """Test the claim by the runs that count."""
        counted = [result for result in results if result.get("state") not in NOT_COUNTED]
        try:
            return TESTS[self.test](counted, **(self.leads or {}))
        except MissingRunsError as error:
            states = Counter(result["state"] for result in results if result.get("state") in NOT_COUNTED)
            left_out = ", ".join(f"{number} {state}" for state, number in states.items())
            return Ruling(
                "not tested", f"no runs of {error}" + (f"; runs that do not count: {left_out}" if left_out else "")
            )


class MissingRunsError(LookupError):
    """A claim cannot be tested, since runs are missing."""


class Means(dict[tuple[Any, ...], float]):
    """Means over splits, by the values of some fields of the configuration."""

    def __init__(self, axes: Sequence[str], means: Mapping[tuple[Any, ...], float]) -> None:
        super().__init__(means)
        self.axes = axes

    def __missing__(self, key: tuple[Any, ...]) -> float:
        raise MissingRunsError(", ".join(f"{axis} {value}" for axis, value in zip(self.axes, key, strict=True)))


def claims() -> list[Claim]:
    """All claims."""
    text = (resources.files(experiments) / "claims.toml").read_text()
    return [Claim(**each) for each in tomllib.loads(text)["claims"]]


def claims_page(runs: Mapping[str, Sequence[Result]]) -> Page:
    """The ledger, given the finished runs of each experiment."""
    rows = list[list[str | Cell]]()
    for claim in claims():
        verdict, why = claim.judge(runs.get(claim.experiment, []))
        rows.append([claim.text, claim.where, f"`{claim.experiment}`", Cell(verdict, STYLES[verdict]), why])
    headings = ["claim", "in the paper", "experiment", "verdict", "why"]
    counts = Counter(row[3].text for row in rows if isinstance(row[3], Cell))
    summary = f"{len(rows)} claims: " + ", ".join(f"{counts[verdict]} {verdict}" for verdict in STYLES) + "."
    return Page("The paper's claims", [summary, INTRODUCTION, Table(headings, rows, text_columns=len(headings))])


def leads(
    results: list[Result],
    first: str,
    others: Sequence[str],
    measure: str = "ELBO",
    share: float = 1.0,
    axis: str = "posterior",
    by: float = TOLERANCE,
    splits: int = 1,
    only: Mapping[str, Sequence[Any]] | None = None,
) -> Ruling:
    """One posterior is ahead of each of the others in a share of all cells.

    The claim is undecided if it would hold with all cells in which neither is ahead.

    Arguments:
        results: The runs.
        first: The posterior that should lead.
        others: Those behind it.
        measure: Heading of the number to compare.
        share: The least share of the cells.
        axis: The field of a configuration that tells the two apart.
        by: The smallest difference that counts.
        splits: The least number of common splits in a cell.
        only: Values of the fields of a configuration.
    """
    chosen = [run for run in results if all(run["config"][key] in values for key, values in (only or {}).items())]
    words, shares, possible = [], [], []
    for other in others:
        found = differences_by_cell(chosen, MEASURES[measure], axis, first, other, by, splits)
        if not found:
            enough = f" with {splits} splits" if splits > 1 else ""
            raise MissingRunsError(f"{first} and {other} in a common cell{enough}")
        ahead, behind = sum(lead > 0 for lead in found), sum(lead < 0 for lead in found)
        words.append(f"{first} over {other}: ahead in {ahead}, behind in {behind} of {len(found)} cells")
        shares.append(ahead / len(found))
        possible.append(1 - behind / len(found))
    why = f"{measure}: {'; '.join(words)}"
    return Ruling("undecided", why) if min(shares) < share <= min(possible) else _rule(min(shares) >= share, why)


def nearest_to_hmc(results: list[Result]) -> Ruling:
    """Global is nearest to HMC in the mean and the standard deviation of predictions."""
    found, names = distances_from_hmc(results), ("factorised", "local", "global")
    if not set(names) <= found.keys():
        raise MissingRunsError(", ".join(name for name in names if name not in found) + " and hmc on the same data")
    distances = {name: [found[name][f"{part} all"] for part in ("mean", "std")] for name in names}
    words = ", ".join(f"{name} {mean:.3f} and {std:.3f}" for name, (mean, std) in distances.items())
    is_nearest = bool((np.argmin(list(distances.values()), 0) == names.index("global")).all())
    return _rule(is_nearest, f"RMS distance of mean and standard deviation: {words}")


def ten_points_suffice(results: list[Result]) -> Ruling:
    """The ELBO hardly grows beyond ten inducing points, and two are not enough."""
    elbos = _means(results, "num_inducing")
    early, late = elbos[10,] - elbos[2,], elbos[40,] - elbos[10,]
    return _rule(
        early > 0.1 and abs(late) < 0.2 * early, f"2 to 10 points gain {early:.2f} nats, 10 to 40 gain {late:.2f}"
    )


def local_collapses(results: list[Result]) -> Ruling:
    """The layer functions vary much less under local than under global."""
    variances = [_means(results, "posterior", measure=layer_variance(layer)) for layer in (0, 1)]
    ratios = [each["global",] / max(each["local",], 1e-12) for each in variances]
    return _rule(min(ratios) > 2, f"variance of global over local: {ratios[0]:.3g} and {ratios[1]:.3g} times")


def factorised_falls_with_size(results: list[Result]) -> Ruling:
    """The ELBO of factorised and local falls with depth, and more in wide networks."""
    drops = _drops(results, "factorised", "local")
    falls = all(0.1 < drops[name, 5] < drops[name, 250] for name in ("factorised", "local"))
    return _rule(falls, _drop_words(drops))


def global_last_layer_falls_less(results: list[Result]) -> Ruling:
    """With a global last layer the ELBO falls less with depth than without, at every width."""
    without, with_global = ("factorised", "local"), ("global", "factorised->global", "prior->global")
    drops = _drops(results, *without, *with_global)
    widths = (5, 50, 250)
    less = (max(drops[name, w] for name in with_global) < min(drops[name, w] for name in without) for w in widths)
    return _rule(all(less), _drop_words(drops))


def global_improves_with_width(results: list[Result]) -> Ruling:
    """With a global last layer the ELBO of networks of depth 16 grows with width."""
    elbos = _means(results, "posterior", "width", "depth")
    ends = {name: (elbos[name, 5, 16], elbos[name, 250, 16]) for name in ("global", "prior->global")}
    words = ", ".join(f"{name} {narrow:.2f} at width 5, {wide:.2f} at 250" for name, (narrow, wide) in ends.items())
    return _rule(all(narrow < wide for narrow, wide in ends.values()), f"depth 16: {words}")


def local_is_ahead_somewhere(results: list[Result]) -> Ruling:
    """Local or DSVI has a higher ELBO than global on one of power, protein, yacht and kin8nm."""
    chosen = [run for run in results if run["config"]["dataset"] in ("power", "protein", "yacht", "kin8nm")]
    found = [
        lead
        for name in ("local", "dsvi")
        for lead in differences_by_cell(chosen, ELBO, "posterior", name, "global", TOLERANCE, splits=3)
    ]
    if not found:
        raise MissingRunsError("global and a local approach on these sets")
    sets = ", ".join(dict.fromkeys(run["config"]["dataset"] for run in chosen))
    ahead = sum(lead > 0 for lead in found)
    return _rule(ahead > 0, f"a local approach is ahead in {ahead} of {len(found)} cells; sets with runs: {sets}")


def only_global_escapes(results: list[Result]) -> Ruling:
    """Under priors that can shrink the weights only global has an ELBO above guessing."""
    elbos = _means(results, "prior", "posterior")
    names = ("factorised", "local", "factorised->global", "global")
    found = {(prior, name): elbos[prior, name] for prior in ("scale", "spatial-iw") for name in names}
    words = ", ".join(f"{prior} {name} {elbo:.2f}" for (prior, name), elbo in found.items())
    escapes = ((elbo > GUESSING + 0.05) == (name == "global") for (_, name), elbo in found.items())
    return _rule(all(escapes), words)


def standard_prior_is_below_guessing(results: list[Result]) -> Ruling:
    """Under the standard prior all ELBOs are far below guessing."""
    elbos = _means(results, "prior", "posterior")
    names = ("factorised", "local", "factorised->global", "global")
    found = {name: elbos["standard", name] for name in names}
    words = ", ".join(f"{name} {elbo:.1f}" for name, elbo in found.items())
    return _rule(max(found.values()) < GUESSING - 1, words)


def factorised_is_transiently_best(results: list[Result]) -> Ruling:
    """Under the standard prior factorised posteriors are more accurate than all others at some time, and then fall."""
    curves = {
        (run["config"]["prior"], run["config"]["posterior"]): [point[2] for point in run["metrics"]["curve"]]
        for run in results
        if run["metrics"].get("curve")
    }
    names = [("standard", "factorised"), ("standard", "factorised->global")]
    if not {*names, ("standard", "local"), ("standard", "global")} <= curves.keys():
        raise MissingRunsError("all posteriors under StandardPrior, with curves")
    others = max(max(curve) for key, curve in curves.items() if key not in names)
    ends = {name: (max(curves["standard", name]), curves["standard", name][-1]) for _, name in names}
    words = ", ".join(f"{name} at most {peak:.1f} %, at the end {last:.1f} %" for name, (peak, last) in ends.items())
    return _rule(
        all(peak > others and last < peak - 1 for peak, last in ends.values()),
        f"{words}; others at most {others:.1f} %",
    )


def similar_times(results: list[Result]) -> Ruling:
    """The ratios of times are within a factor of 1.5 of the paper's."""
    ours = _means(results, "posterior", measure=RATIO)
    paper = {name: RATIO.of(numbers) for name, numbers in published()["epoch_times"].items() if name != "factorised"}
    words = ", ".join(f"{name} {ours[name,]:.1f} (the paper {ratio:.1f})" for name, ratio in paper.items())
    return _rule(all(1 / 1.5 < ours[name,] / ratio < 1.5 for name, ratio in paper.items()), words)


def _rule(held: bool, why: str) -> Ruling:
    return Ruling("held" if held else "not held", why)


def differences_by_cell(
    results: Iterable[Result], measure: Measure, axis: str, first: str, second: str, by: float, splits: int
) -> list[float]:
    """How much better the first is than the second in each cell with enough splits; zero if it does not count.

    A difference counts if it is larger than `by` and outside of the 95 % interval of the mean (Student's t).
    """
    from scipy.stats import t

    sign = -1 if measure.higher_is_better is False else 1
    cells: dict[str, dict[str, dict[int, float]]] = defaultdict(lambda: defaultdict(dict))
    for result in results:
        config, value = result["config"], measure.of(result["metrics"])
        if value is not None:
            cell = str([config.get(key) for key in CELL if key != axis])
            cells[cell][config[axis]][config["split"]] = sign * value
    differences = []
    for found in cells.values():
        common = found[first].keys() & found[second].keys()
        if len(common) >= splits:
            estimate = over_splits([found[first][split] - found[second][split] for split in common])
            half_width = t.ppf(0.975, len(common) - 1) * estimate.error if len(common) > 1 else 0.0
            differences.append(estimate.mean if abs(estimate.mean) > max(half_width, by) else 0.0)
    return differences


def _means(results: Iterable[Result], *axes: str, measure: Measure = ELBO) -> Means:
    """The mean of a measure over splits, by the values of some fields."""
    groups: dict[Any, list[float]] = defaultdict(list)
    for result in results:
        value = measure.of(result["metrics"])
        if value is not None:
            groups[tuple(result["config"][axis] for axis in axes)].append(value)
    return Means(axes, {key: over_splits(values).mean for key, values in groups.items()})


def _drops(results: Iterable[Result], *posteriors: str) -> dict[tuple[str, int], float]:
    """How much the ELBO falls from depth 1 to depth 16, by posterior and width."""
    elbos = _means(results, "posterior", "width", "depth")
    pairs = [(name, width) for name in posteriors for width in (5, 50, 250)]
    return {(name, width): elbos[name, width, 1] - elbos[name, width, 16] for name, width in pairs}


def _drop_words(drops: Mapping[tuple[str, int], float]) -> str:
    return "drop from depth 1 to 16: " + ", ".join(
        f"{name} {drop:.2f} at {width}" for (name, width), drop in drops.items()
    )


TESTS: dict[str, Callable[..., Ruling]] = {
    test.__name__: test
    for test in (
        leads,
        nearest_to_hmc,
        ten_points_suffice,
        local_collapses,
        factorised_falls_with_size,
        global_last_layer_falls_less,
        global_improves_with_width,
        local_is_ahead_somewhere,
        only_global_escapes,
        standard_prior_is_below_guessing,
        factorised_is_transiently_best,
        similar_times,
    )
}
