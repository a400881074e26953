"""The paper's claims that an experiment backs, in our words, and whether the stored runs agree.

A claim compares posteriors (or priors) cell by cell: the runs of a cell differ in nothing else. One leads another in a cell
if the mean difference over their common splits is larger than two standard errors and than a margin.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Literal, NamedTuple

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
from inducing.pages import Cell, Page, Style, Table

Verdict = Literal["held", "not held", "not tested"]
# nats per image, the ELBO of guessing one of ten classes
GUESSING = -2.303
SMALL = ("boston", "concrete", "energy", "wine")


class Ruling(NamedTuple):
    """What the stored runs say about a claim, and why."""

    verdict: Verdict
    why: str


Check = Callable[[Sequence[Result]], Ruling]


class Claim(NamedTuple):
    """A claim of the paper.

    Arguments:
        text: The claim, in our words.
        where: Its place in the paper.
        experiment: The experiment whose runs test it.
        check: Function that judges the claim by finished runs.
    """

    text: str
    where: str
    experiment: str
    check: Check


STYLES: dict[Verdict, Style] = {"held": "good", "not held": "bad", "not tested": "neutral"}
INTRODUCTION = (
    "Made by `inducing report` from the stored runs. Each claim of the paper that an experiment backs, in our words. A "
    "posterior is ahead of another in a cell (the same data, prior and size) if the mean difference over common splits is "
    "larger than two standard errors and than 0.02; with one split only the latter counts. Runs that are out of date or did "
    "not converge are left out."
)


def claims_page(runs: Mapping[str, Sequence[Result]]) -> Page:
    """The ledger of claims, given the finished runs of each experiment."""
    rows = list[list[str | Cell]]()
    for claim in CLAIMS:
        results = [run for run in runs.get(claim.experiment, []) if run.get("state") not in NOT_COUNTED]
        verdict, why = claim.check(results)
        rows.append(
            [
                claim.text,
                claim.where,
                f"`{claim.experiment}`" if claim.experiment else "",
                Cell(verdict, STYLES[verdict]),
                why,
            ]
        )
    headings = ["claim", "in the paper", "experiment", "verdict", "why"]
    return Page("The paper's claims", [INTRODUCTION, Table(headings, rows, text_columns=len(headings))])


def rule(held: bool, why: str) -> Ruling:
    """A claim that holds, or does not."""
    return Ruling("held" if held else "not held", why)


def leads(
    first: str,
    *others: str,
    measure: Measure = ELBO,
    share: float = 1.0,
    axis: str = "posterior",
    ties: bool = False,
    by: float = TOLERANCE,
    **only: Any,
) -> Check:
    """Check that one posterior leads others in a share of all cells.

    Arguments:
        first: The posterior that should lead.
        others: Those behind it.
        measure: The number to compare.
        share: The least share of the cells.
        axis: The field of a configuration that tells the two apart.
        ties: Whether cells without a lead of either side count, too.
        by: The smallest difference that counts.
        only: Values of the fields of a configuration: one, or several.
    """

    def check(results: Sequence[Result]) -> Ruling:
        sign = -1 if measure.higher_is_better is False else 1
        chosen = [result for result in results if _matches(result["config"], only)]
        words, counted = [], []
        for other in others:
            leads = [sign * lead for lead in _leads(chosen, measure, axis, first, other, by)]
            ahead, behind = sum(lead > 0 for lead in leads), sum(lead < 0 for lead in leads)
            if leads:
                words.append(f"{first} over {other}: ahead in {ahead}, behind in {behind} of {len(leads)} cells")
                counted.append((len(leads) - behind if ties else ahead) / len(leads))
        if not counted:
            return Ruling("not tested", f"no cell has runs of {first} and {' or '.join(others)}")
        return rule(min(counted) >= share, f"{measure.heading}: {'; '.join(words)}")

    return check


def _matches(config: Mapping[str, Any], only: Mapping[str, Any]) -> bool:
    return all(config[key] in (value if isinstance(value, tuple) else (value,)) for key, value in only.items())


def _leads(results: Iterable[Result], measure: Measure, axis: str, first: str, second: str, by: float) -> list[float]:
    """The lead of the first over the second in each cell, zero if it does not count."""
    cells: dict[str, dict[str, dict[int, float]]] = defaultdict(lambda: defaultdict(dict))
    for result in results:
        config, value = result["config"], measure.of(result["metrics"])
        if value is not None:
            # settings that were chosen for each posterior, such as its steps, do not tell cells apart
            cell = str(
                [config.get(key) for key in ("dataset", "prior", "depth", "width", "num_inducing") if key != axis]
            )
            cells[cell][config[axis]][config["split"]] = value
    leads = []
    for found in cells.values():
        splits = found[first].keys() & found[second].keys()
        if splits:
            estimate = over_splits([found[first][split] - found[second][split] for split in splits])
            counts = abs(estimate.mean) > max(2 * estimate.error, by)
            leads.append(estimate.mean if counts else 0.0)
    return leads


def _by(results: Sequence[Result], *axes: str, measure: Measure = ELBO, **only: Any) -> dict[Any, float]:
    """The mean of a measure over splits, by the values of some fields."""
    groups: dict[Any, list[float]] = defaultdict(list)
    for result in results:
        value = measure.of(result["metrics"])
        if value is not None and _matches(result["config"], only):
            groups[tuple(result["config"][axis] for axis in axes)].append(value)
    return {key if len(key) > 1 else key[0]: sum(values) / len(values) for key, values in groups.items()}


def nearest_to_hmc(results: Sequence[Result]) -> Ruling:
    """Global is nearest to HMC in the mean and the standard deviation of predictions."""
    curves = {result["config"]["posterior"]: result["metrics"] for result in results}
    if not {"hmc", "global", "factorised", "local"} <= curves.keys():
        return Ruling("not tested", "runs are missing")
    distances = {
        name: [_distance(curves[name][part], curves["hmc"][part]) for part in ("mean", "std")]
        for name in ("factorised", "local", "global")
    }
    is_nearest = all(distances["global"][i] == min(each[i] for each in distances.values()) for i in (0, 1))
    words = ", ".join(f"{name} {mean:.3f} and {std:.3f}" for name, (mean, std) in distances.items())
    return rule(is_nearest, f"RMS distance of mean and standard deviation: {words}")


def _distance(ours: Sequence[float], other: Sequence[float]) -> float:
    squares = [(a - b) ** 2 for a, b in zip(ours, other, strict=True)]
    return float(sum(squares) / len(squares)) ** 0.5


def ten_points_suffice(results: Sequence[Result]) -> Ruling:
    """The ELBO hardly grows beyond ten inducing points, and two are not enough."""
    elbos = _by(results, "num_inducing")
    if not {2, 10, 40} <= elbos.keys():
        return Ruling("not tested", "runs are missing")
    early, late = elbos[10] - elbos[2], elbos[40] - elbos[10]
    return rule(late < 0.2 * early, f"2 to 10 points gain {early:.2f} nats, 10 to 40 gain {late:.2f}")


def falls_with_size(*posteriors: str) -> Check:
    """The ELBO of these posteriors falls with depth, and faster the wider the network."""

    def check(results: Sequence[Result]) -> Ruling:
        elbos = _by(results, "posterior", "width", "depth")
        drops = {
            (name, width): elbos[name, width, 1] - elbos[name, width, 16]
            for name in posteriors
            for width in (5, 50, 250)
            if {(name, width, 1), (name, width, 16)} <= elbos.keys()
        }
        if len(drops) < 3 * len(posteriors):
            return Ruling("not tested", "runs are missing")
        falls = all(drops[name, 5] > 0.1 and drops[name, 5] < drops[name, 250] for name in posteriors)
        return rule(falls, "drop from depth 1 to 16: " + _drops(drops))

    return check


def decays_slowly(results: Sequence[Result]) -> Ruling:
    """With global inducing points in the last layer the ELBO falls less with depth than without."""
    elbos = _by(results, "posterior", "width", "depth")
    names = ("factorised", "local", "global", "factorised->global", "prior->global")
    drops = {
        (name, width): elbos[name, width, 1] - elbos[name, width, 16]
        for name in names
        for width in (5, 50, 250)
        if {(name, width, 1), (name, width, 16)} <= elbos.keys()
    }
    if len(drops) < 15:
        return Ruling("not tested", "runs are missing")
    slower = all(
        max(drops[name, width] for name in names[2:]) < min(drops[name, width] for name in names[:2])
        for width in (5, 50, 250)
    )
    return rule(slower, "drop from depth 1 to 16: " + _drops(drops))


def _drops(drops: Mapping[tuple[str, int], float]) -> str:
    return ", ".join(f"{name} {drop:.2f} at width {width}" for (name, width), drop in drops.items())


def improves_with_width(results: Sequence[Result]) -> Ruling:
    """With global inducing points in the last layer the ELBO of deep networks grows with width."""
    elbos = _by(results, "posterior", "width", depth=16)
    names = [name for name in ("global", "prior->global") if {(name, 5), (name, 250)} <= elbos.keys()]
    if not names:
        return Ruling("not tested", "runs are missing")
    words = ", ".join(f"{name} {elbos[name, 5]:.2f} at width 5, {elbos[name, 250]:.2f} at 250" for name in names)
    return rule(all(elbos[name, 250] > elbos[name, 5] for name in names), f"depth 16: {words}")


def fails_at_width_250(results: Sequence[Result]) -> Ruling:
    """factorised->global is worse than prior->global, which it contains, at width 250."""
    elbos = _by(results, "posterior", "depth", width=250)
    pairs = [
        (elbos["factorised->global", depth], elbos["prior->global", depth]) for name, depth in elbos if name == "global"
    ]
    if not pairs:
        return Ruling("not tested", "runs are missing")
    behind = sum(ours < other - TOLERANCE for ours, other in pairs)
    return rule(behind > len(pairs) / 2, f"behind prior->global at {behind} of {len(pairs)} depths")


def collapses(results: Sequence[Result]) -> Ruling:
    """The functions of local's layers vary much less than those of global."""
    found = {result["config"]["posterior"]: result["metrics"]["layer_variance"] for result in results}
    if not {"local", "global"} <= found.keys():
        return Ruling("not tested", "runs are missing")
    ratios = [wide / max(narrow, 1e-12) for narrow, wide in zip(found["local"], found["global"], strict=True)]
    words = ", ".join(f"{ratio:.3g} times in layer {layer}" for layer, ratio in enumerate(ratios, 1))
    return rule(min(ratios) > 2, f"variance of global over local: {words}")


def only_global_escapes(results: Sequence[Result]) -> Ruling:
    """Under priors that can shrink the weights only global has an ELBO above guessing."""
    elbos = _by(results, "prior", "posterior", prior=("scale", "spatial-iw"))
    if not any(name == "global" for _, name in elbos):
        return Ruling("not tested", "runs are missing")
    escaped = {key for key, elbo in elbos.items() if elbo > GUESSING + 0.05}
    words = ", ".join(f"{prior} {name} {elbo:.2f}" for (prior, name), elbo in elbos.items())
    return rule(escaped == {key for key in elbos if key[1] == "global"}, words)


def below_guessing(results: Sequence[Result]) -> Ruling:
    """Under the standard prior all ELBOs are far below guessing."""
    elbos = _by(results, "posterior", prior="standard")
    if not elbos:
        return Ruling("not tested", "runs are missing")
    words = ", ".join(f"{name} {elbo:.1f}" for name, elbo in elbos.items())
    return rule(max(elbos.values()) < GUESSING - 1, words)


def transiently_best(results: Sequence[Result]) -> Ruling:
    """Under the standard prior, factorised posteriors are more accurate than all others at some time, and then fall."""
    curves = {
        (result["config"]["prior"], result["config"]["posterior"]): [point[2] for point in result["metrics"]["curve"]]
        for result in results
        if "curve" in result["metrics"]
    }
    names = [("standard", "factorised"), ("standard", "factorised->global")]
    if not {*names, ("standard", "global")} <= curves.keys():
        return Ruling("not tested", "runs are missing")
    others = max(max(curve) for key, curve in curves.items() if key not in names)
    peaks = {name: max(curves[name]) for name in names}
    falls = all(peaks[name] > others and curves[name][-1] < peaks[name] - 1 for name in names)
    words = ", ".join(
        f"{name[1]} at most {peak:.1f} %, at the end {curves[name][-1]:.1f} %" for name, peak in peaks.items()
    )
    return rule(falls, f"{words}; all others at most {others:.1f} %")


def similar_times(results: Sequence[Result]) -> Ruling:
    """The ratios of times are within a factor of 1.5 of the paper's."""
    ratios = _by(results, "posterior", measure=EPOCH_RATIO)
    paper = {"local": 33 / 19, "factorised->global": 25 / 19, "global": 65 / 19}
    if not paper.keys() <= ratios.keys():
        return Ruling("not tested", "runs are missing")
    words = ", ".join(f"{name} {ratios[name]:.1f}" for name in paper)
    return rule(all(1 / 1.5 < ratios[name] / paper[name] < 1.5 for name in paper), words)


def local_beats_global_somewhere(results: Sequence[Result]) -> Ruling:
    """A local approach has a higher ELBO than global on one of power, protein, yacht and kin8nm."""
    datasets = ("power", "protein", "yacht", "kin8nm")
    chosen = [result for result in results if result["config"]["dataset"] in datasets]
    leads = [
        lead for other in ("local", "dsvi") for lead in _leads(chosen, ELBO, "posterior", other, "global", TOLERANCE)
    ]
    tested = ", ".join(dict.fromkeys(result["config"]["dataset"] for result in chosen))
    if not leads:
        return Ruling("not tested", "runs are missing")
    ahead = sum(lead > 0 for lead in leads)
    return rule(ahead > 0, f"a local approach is ahead in {ahead} of {len(leads)} cells; sets with runs: {tested}")


STD_OUTSIDE = Measure("std_outside", "standard deviation outside the data", nats=False)
ACCURACY = Measure("accuracy", "accuracy", nats=False)
ECE = Measure("ece", "ECE", higher_is_better=False, nats=False)
RATIO = Measure("entropy_ratio", "entropy ratio", higher_is_better=False, nats=False)

EPOCH_RATIO = Measure("over_factorised", "time of an epoch", nats=False)

CLAIMS = [
    Claim("Of the variational posteriors, global is nearest to HMC.", "Uncertainty in 1D", "toy", nearest_to_hmc),
    Claim(
        "Ten inducing points are nearly as good as more; two are not enough.",
        "Number of inducing points",
        "toy-num-inducing",
        ten_points_suffice,
    ),
    Claim(
        "Functions of the first layer vary more under global.",
        "Compositional uncertainty",
        "compositional-bnn",
        leads("global", "factorised", "local", measure=layer_variance(0)),
    ),
    Claim(
        "Functions of the last layer vary more under global.",
        "Compositional uncertainty",
        "compositional-bnn",
        leads("global", "factorised", "local", measure=layer_variance(2)),
    ),
    Claim(
        "The ELBO of a network on the toy data is far better with global.",
        "Compositional uncertainty",
        "compositional-bnn",
        leads("global", "factorised", "local", by=1.0),
    ),
    Claim(
        "Layers of a deep GP collapse to nearly fixed functions under local, not under global.",
        "Compositional uncertainty",
        "compositional-dgp",
        collapses,
    ),
    Claim(
        "Global has the better ELBO on data of a deep GP.",
        "Compositional uncertainty",
        "compositional-dgp",
        leads("global", "local"),
    ),
    Claim(
        "Error bars of deep GPs outside the data are wider under global.",
        "Compositional uncertainty",
        "compositional-dgp",
        leads("global", "local", measure=STD_OUTSIDE),
    ),
    Claim(
        "The ELBO of posteriors that factorise over layers falls with depth, faster in wide networks.",
        "Deep linear networks",
        "linear",
        falls_with_size("factorised", "local"),
    ),
    Claim(
        "With global inducing points in the last layer the ELBO falls more slowly.",
        "Deep linear networks",
        "linear",
        decays_slowly,
    ),
    Claim(
        "With them, wide networks are better than narrow ones.", "Deep linear networks", "linear", improves_with_width
    ),
    Claim(
        "A global last layer is good even above weights drawn from the prior.",
        "Deep linear networks",
        "linear",
        leads("prior->global", "factorised", "local", width=(50, 250), depth=(4, 8, 16)),
    ),
    Claim(
        "factorised->global is behind prior->global at width 250, an optimisation problem.",
        "Deep linear networks",
        "linear",
        fails_at_width_250,
    ),
    Claim(
        "Global has a better ELBO than factorised and local in almost every case.",
        "UCI, networks",
        "uci-bnn",
        leads("global", "factorised", "local", share=0.9),
    ),
    Claim(
        "So has factorised->global.",
        "UCI, networks",
        "uci-bnn",
        leads("factorised->global", "factorised", "local", share=0.9),
    ),
    Claim(
        "Factorised predicts very poorly under ScalePrior.",
        "UCI, networks",
        "uci-bnn",
        leads("neal", "scale", measure=TEST, axis="prior", posterior="factorised", share=0.8),
    ),
    Claim(
        "Global has a better ELBO than DSVI on small sets.",
        "UCI, deep GPs",
        "uci-dgp",
        leads("global", "dsvi", share=0.9, dataset=SMALL),
    ),
    Claim(
        "Global generally has a better ELBO than local on small sets.",
        "UCI, deep GPs",
        "uci-dgp",
        leads("global", "local", share=0.7, dataset=SMALL),
    ),
    Claim(
        "Local approaches sometimes have a better ELBO on power, protein, yacht or kin8nm.",
        "UCI, deep GPs",
        "uci-dgp",
        local_beats_global_somewhere,
    ),
    Claim("Local generally outperforms DSVI.", "UCI, deep GPs", "uci-dgp", leads("local", "dsvi", share=0.7)),
    Claim(
        "Global has the best ELBO, by a wide margin.",
        "CIFAR-10",
        "cifar10",
        leads("global", "factorised", "local", "factorised->global", by=0.1),
    ),
    Claim(
        "Global is the most accurate.",
        "CIFAR-10",
        "cifar10",
        leads("global", "factorised", "local", "factorised->global", measure=ACCURACY),
    ),
    Claim(
        "A global last layer improves a factorised network.",
        "CIFAR-10",
        "cifar10",
        leads("factorised->global", "factorised"),
    ),
    Claim(
        "SpatialIWPrior improves calibration over ScalePrior.",
        "Calibration",
        "cifar10",
        leads("spatial-iw", "scale", measure=ECE, axis="prior", by=0.0),
    ),
    Claim(
        "Local under SpatialIWPrior has the best calibration, by a small margin.",
        "Calibration",
        "cifar10",
        leads("local", "factorised", "factorised->global", "global", measure=ECE, by=0.0, prior="spatial-iw"),
    ),
    Claim(
        "Global tells SVHN from CIFAR-10 best.",
        "Out of distribution",
        "cifar10",
        leads("global", "factorised", "local", "factorised->global", measure=RATIO),
    ),
    Claim(
        "In a ResNet-18 with augmentation and tempering, factorised->global is better than factorised.",
        "CIFAR-10",
        "cifar10-resnet18",
        leads("factorised->global", "factorised", measure=TEST),
    ),
    Claim(
        "Only global has an ELBO above guessing under ScalePrior and SpatialIWPrior.",
        "MNIST 500",
        "mnist500",
        only_global_escapes,
    ),
    Claim("Under StandardPrior all ELBOs are far below guessing.", "MNIST 500", "mnist500", below_guessing),
    Claim(
        "Under StandardPrior, factorised and factorised->global are more accurate than all others for a while.",
        "MNIST 500",
        "mnist500",
        transiently_best,
    ),
    Claim(
        "An epoch takes 1.7 (local), 1.3 (factorised->global) and 3.4 times (global) as long as with factorised.",
        "CIFAR-10",
        "epoch-times",
        similar_times,
    ),
]
