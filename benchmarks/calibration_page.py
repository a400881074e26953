"""The page and the figure of `benchmarks.calibration`."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from typing import NamedTuple

import numpy as np

from benchmarks import calibration
from benchmarks.processes import ROOT
from benchmarks.ranks import band, counts_below, coverage
from inducing import pages
from inducing.experiments.engine.figures import COLOURS, Figure, panels
from inducing.experiments.engine.store import Result, config_key
from inducing.pages import Block, Heading, Image, Page, Table

PAGE = ROOT / "docs" / "calibration.md"
LABELS = {"gp": "one GP, exact", "hmc": "HMC", "deep gp, global": "deep GP, global"}
# nats by which twice the number of steps may change the mean ELBO of a converged posterior
TOLERANCE = 0.2
NUM_FUNCTIONS = len(calibration.TESTS)
INTRODUCTION = f"""Made by `python -m benchmarks.calibration` from the runs in `benchmarks/calibration.jsonl`.

*Simulation-based calibration* (Talts et al., 2018) draws a function from the prior, simulates data from it, infers the
function from the data, and ranks the true function value among {calibration.DRAWS} posterior draws. If the inference is
exact, the truth is like one more draw, so over many simulations all ranks are equally frequent. No exact posterior is needed
for comparison, so the test also applies to deep Gaussian processes.

The models are small, and their noise and hyperparameters are known: {len(calibration.INPUTS)} inputs in [-1.5, -0.5] and
[0.5, 1.5], noise variance {calibration.NOISE}. *HMC*, *factorised*, *local* and *global* infer a network with one hidden
layer of {calibration.HIDDEN} units (ReLU, `NealPrior`), from the same simulated data. Deep GPs have two layers with the
default kernel, fixed. The truth is ranked by the function value among the data (-1), in the gap (0) and beyond the data
(2.5), and by the log-likelihood log p(y | f). Two controls: *one GP, exact* has its closed-form posterior. *Prior* ignores
the data. It passes for function values, as it must, and shows why the log-likelihood is needed (Modrák et al., 2023)."""
PICTURE = """Each panel shows the difference between the distribution function of the ranks and that of uniform ranks. Grey:
the region in which the whole curve of an exact method stays in 95 % of all cases (Säilynoja, Bürkner & Vehtari, 2022). A
curve that is first above and then below zero: too many truths are at the edge of the draws or outside, so the posterior is
too narrow. First below and then above: too wide. A curve below zero: ranks are too high. For log p(y | f) this means that
the draws fit the data less well than the truth does."""
COVERAGE = """Share of true function values inside the central intervals of 50 % and 90 %, and the spread (standard
deviation) of the draws divided by that of HMC on the same data, geometric means. For an exact method the standard errors of
the shares are at most {half:.1f} and {most:.1f} percentage points."""


class Found(NamedTuple):
    """The runs of a method.

    Arguments:
        name: The method.
        runs: Its runs by simulation.
        repeated: Runs with twice the number of steps, by simulation.
    """

    name: str
    runs: dict[int, Result]
    repeated: dict[int, Result]

    @property
    def label(self) -> str:
        return LABELS.get(self.name, self.name)

    @property
    def ranks(self) -> np.ndarray:
        """The ranks of each simulation by each statistic."""
        return np.array([run["metrics"]["ranks"] for run in self.runs.values()])

    @property
    def p_values(self) -> list[float]:
        """The p-value of each statistic."""
        expected = band(len(self.runs), calibration.DRAWS)
        return [expected.p_value(ranks) for ranks in self.ranks.T]

    @property
    def corrected(self) -> float:
        """The p-value of all statistics together, with Bonferroni's correction."""
        return min(1.0, min(self.p_values) * len(calibration.STATISTICS))

    def coverages(self, level: float) -> list[float]:
        """The coverage at each test input."""
        return [coverage(ranks, calibration.DRAWS, level) for ranks in self.ranks.T[:NUM_FUNCTIONS]]

    def spreads(self, reference: Found) -> list[float]:
        """The spread relative to that of another method on the same data, at each test input."""
        common = sorted(self.runs.keys() & reference.runs.keys())
        own, other = (np.array([each.runs[n]["metrics"]["spreads"] for n in common]) for each in (self, reference))
        return np.exp(np.log(own / other).mean(0)).tolist()


def collect(results: list[Result]) -> dict[str, Found]:
    """The runs of each method with its present settings."""
    runs: dict[tuple[str, int], dict[int, Result]] = defaultdict(dict)
    for result in results:
        config = result["config"]
        name, number, factor = config["method"], config["split"], config["factor"]
        if result["key"] == config_key(calibration.configuration(name, number, factor)):
            runs[name, factor][number] = result
    names = [name for name in calibration.METHODS if (name, 1) in runs]
    return {name: Found(name, dict(sorted(runs[name, 1].items())), runs[name, 2]) for name in names}


def page(found: dict[str, Found]) -> Page:
    """The whole page."""
    methods = list(found.values())
    blocks: list[Block] = [
        *INTRODUCTION.split("\n\n"),
        Heading("Which methods pass"),
        verdicts(methods),
        tests(methods),
    ]
    blocks += [PICTURE, Image(draw(methods), "Ranks of each method", file="calibration.png")]
    count = min(len(each.runs) for each in methods)
    errors = {"half": 100 * (0.25 / count) ** 0.5, "most": 100 * (0.09 / count) ** 0.5}
    blocks += [Heading("What each approximation loses"), COVERAGE.format(**errors), intervals(found)]
    blocks += [*losses(found), Heading("Have the runs converged?"), *convergence(found), Heading("Versions")]
    return Page("Calibration of the inference", [*blocks, versions(methods), Heading("References"), REFERENCES])


def verdicts(methods: list[Found]) -> str:
    """A sentence: which methods pass and which do not."""
    passed, failed = ([each.label for each in methods if (each.corrected > 0.05) is wanted] for wanted in (True, False))
    return (
        f"Passed at the level 5 %: {'; '.join(passed) or 'none'}. Not passed: {'; '.join(failed) or 'none'}. The p-value of "
        "a method is the smallest of its four, times four (Bonferroni)."
    )


def tests(methods: list[Found]) -> Table:
    """The p-values."""
    headings = ["method", "simulations", *(f"p, {name}" for name in calibration.STATISTICS), "p, all", "passed"]
    rows = [
        [
            each.label,
            str(len(each.runs)),
            *(shown(p) for p in (*each.p_values, each.corrected)),
            "yes" if each.corrected > 0.05 else "no",
        ]
        for each in methods
    ]
    return Table(headings, rows)


def shown(p_value: float) -> str:
    """A p-value for a table."""
    return f"{p_value:.3f}" if p_value >= 0.001 else "< 0.001"


def intervals(found: dict[str, Found]) -> Table:
    """Coverage and spread at each test input."""
    places = calibration.STATISTICS[:NUM_FUNCTIONS]
    headings = ["method", *(f"{level} %, {place}" for level in (50, 90) for place in places)]
    headings += [f"spread, {place}" for place in places]
    rows = []
    for each in found.values():
        shares = [f"{100 * share:.0f} %" for level in (0.5, 0.9) for share in each.coverages(level)]
        comparable = "hmc" in found and calibration.METHODS[each.name].model == "network"
        spreads = [f"{ratio:.2f}" for ratio in each.spreads(found["hmc"])] if comparable else ["-"] * NUM_FUNCTIONS
        rows.append([each.label, *shares, *spreads])
    return Table(headings, rows)


def losses(found: dict[str, Found]) -> list[str]:
    """A sentence about each approximation."""
    sentences = []
    for each in found.values():
        if each.name in ("hmc", "gp", "prior"):
            continue
        half, most = (float(np.mean(each.coverages(level))) for level in (0.5, 0.9))
        median = float(np.median(each.ranks[:, -1]))
        text = (
            f"*{each.label}*: intervals of 50 % and 90 % contain {100 * half:.0f} % and {100 * most:.0f} % of the true "
            f"values (mean of the three inputs). In the median simulation the truth fits the data better than {median:.0f} "
            f"of {calibration.DRAWS} draws; about 50 would be exact."
        )
        if "hmc" in found and calibration.METHODS[each.name].model == "network":
            ratios = each.spreads(found["hmc"])
            text += f" The spread is {ratios[0]:.2f} (data), {ratios[1]:.2f} (gap) and {ratios[2]:.2f} (beyond) times HMC's."
        sentences.append(text)
    return sentences


def convergence(found: dict[str, Found]) -> list[str]:
    """Diagnostics of HMC, and what twice the number of steps changes."""
    texts = []
    if "hmc" in found:
        metrics = [run["metrics"] for run in found["hmc"].runs.values()]
        settings, longer = calibration.HMC, sum(each["length"] > 1 for each in metrics)
        unsolved = sum(each["r_hat"] >= calibration.MAX_R_HAT or each["ess"] <= calibration.MIN_ESS for each in metrics)
        texts.append(
            f"*HMC*: {settings['num_chains']} chains with {settings['num_warmup']} warm-up iterations and "
            f"{settings['num_samples']} more, of which 3, at distances of 40, are ranked. Runs in which R-hat of an output "
            f"is above {calibration.MAX_R_HAT} or an effective sample size is below {calibration.MIN_ESS} are repeated with "
            f"twice the length, up to {calibration.MAX_DOUBLINGS} times: {longer} of {len(metrics)} runs, and {unsolved} "
            f"did not meet the rule in the end. The largest R-hat is {max(each['r_hat'] for each in metrics):.3f}, the "
            f"median of the smallest effective sample sizes {np.median([each['ess'] for each in metrics]):.0f}."
        )
    texts.append(
        "*Fits* have a fixed number of steps of Adam with a cosine schedule. The rule: with twice the steps, the ELBO "
        f"changes by less than {TOLERANCE} nats on average. Both ELBOs are from 1,000 draws."
    )
    for each in found.values():
        pairs = [(each.runs[n], run) for n, run in each.repeated.items() if n in each.runs and "elbo" in run["metrics"]]
        if not pairs:
            continue
        gains = [second["metrics"]["elbo"] - first["metrics"]["elbo"] for first, second in pairs]
        moves = [
            abs(a - b)
            for first, second in pairs
            for a, b in zip(first["metrics"]["ranks"], second["metrics"]["ranks"], strict=True)
        ]
        steps = calibration.METHODS[each.name].settings["num_steps"]
        verdict = "Converged by the rule." if abs(np.mean(gains)) < TOLERANCE else "Not converged by the rule."
        texts.append(
            f"*{each.label}*: {steps} steps. In {len(pairs)} simulations with twice the steps, the ELBO changes by "
            f"{np.mean(gains):+.2f} nats on average (between {min(gains):+.2f} and {max(gains):+.2f}), and ranks move by "
            f"{np.mean(moves):.1f} on average, at most {max(moves)}. {verdict}"
        )
    return texts


def versions(methods: list[Found]) -> str:
    """The versions that made the runs."""
    runs = [run for each in methods for run in each.runs.values()]
    commits = sorted({f"{run['version']} (commit {run['commit']})" for run in runs})
    minutes = sum(run["seconds"] for run in runs) / 60
    planned = sum(method.simulations for method in calibration.METHODS.values())
    missing = (
        f" {planned - len(runs)} planned runs are missing; the same command adds them." if len(runs) < planned else ""
    )
    return f"{len(runs)} runs of inducing {', '.join(commits)}; {minutes:.0f} minutes of one thread.{missing}"


REFERENCES = """- Modrák, Moon, Kim, Bürkner, Huurre, Faltejsková, Gelman & Vehtari, Simulation-based calibration checking
  for Bayesian computation: the choice of test quantities shapes sensitivity (Bayesian Analysis 2023).
- Säilynoja, Bürkner & Vehtari, Graphical test for discrete uniformity and its applications in goodness-of-fit evaluation and
  multiple sample comparison (Statistics and Computing 2022).
- Talts, Betancourt, Simpson, Vehtari & Gelman, Validating Bayesian inference algorithms with simulation-based calibration
  (2018), [arXiv 1804.06788](https://arxiv.org/abs/1804.06788)."""


def draw(methods: list[Found]) -> Figure:
    """The figure: a column for each method, a row for each statistic."""
    figure, axes = panels(len(calibration.STATISTICS), len(methods), (1.75, 1.5), sharex=True, sharey="row")
    for column, each in zip(axes.T, methods, strict=True):
        expected = band(len(each.runs), calibration.DRAWS)
        below = counts_below(each.ranks.T, expected.points) / len(each.runs)
        low, high = (limit - expected.points for limit in expected.limits())
        for panel, curve in zip(column, below, strict=True):
            panel.fill_between(expected.points, low, high, color="0.85", lw=0)
            panel.axhline(0, color="0.6", lw=0.6)
            colour = COLOURS.get(each.name.removeprefix("deep gp, "), "0.1")
            panel.step(expected.points, curve - expected.points, color=colour, lw=1.3, where="mid")
            panel.tick_params(labelsize=7)
        column[0].set_title(each.label, fontsize=9)
        column[-1].set_xlabel("rank / 100", fontsize=8)
    for panel, name in zip(axes[:, 0], calibration.STATISTICS, strict=True):
        panel.set_ylabel(name, fontsize=9)
    return figure


def write(results: list[Result], path: Path = PAGE) -> None:
    """Write the page and the figure."""
    pages.write(page(collect(results)), path)
