"""The ledger of claims, on made-up runs."""

import pytest

from inducing.experiments import claims as tests
from inducing.experiments.claims import MissingRunsError, claims, claims_page, leads
from inducing.experiments.engine.registry import EXPERIMENTS
from inducing.experiments.toy import GRID


def runs(posterior, elbos, dataset="boston", state="converged"):
    return [
        {
            "config": {"dataset": dataset, "posterior": posterior, "prior": "neal", "split": split},
            "metrics": {"elbo_per_datapoint": elbo},
            "state": state,
        }
        for split, elbo in enumerate(elbos)
    ]


@pytest.mark.parametrize(
    ("global_elbos", "verdict"),
    [
        ([1.0, 1.1, 0.9], "held"),
        ([0.0, 0.01, 0.0], "undecided"),
        ([-1.0, 3.0, -1.0], "undecided"),
        # two standard errors, but not the 95 % interval of three splits
        ([0.05, 0.15, 0.25], "undecided"),
        ([-1.0, -1.1, -0.9], "not held"),
    ],
)
def test_a_lead_is_larger_than_two_standard_errors_over_common_splits(global_elbos, verdict):
    results = runs("global", global_elbos) + runs("factorised", [0.0, 0.0, 0.0, 9.0])
    assert leads(results, "global", ["factorised"]).verdict == verdict


def test_a_lead_in_a_share_of_the_cells():
    results = runs("global", [1.0]) + runs("factorised", [0.0])
    results += runs("global", [0.0], "yacht") + runs("factorised", [1.0], "yacht")
    ruling = leads(results, "global", ["factorised"], share=0.5)
    assert ruling == ("held", "ELBO: global over factorised: ahead in 1, behind in 1 of 2 cells")
    assert leads(results, "global", ["factorised"], share=0.6).verdict == "not held"
    assert leads(results, "global", ["factorised"], only={"dataset": ["boston"]}).verdict == "held"


def test_a_claim_about_several_posteriors_needs_all_of_them():
    with pytest.raises(MissingRunsError, match="global and local"):
        leads(runs("global", [1.0]) + runs("factorised", [0.0]), "global", ["factorised", "local"])


@pytest.mark.parametrize("claim", claims(), ids=lambda claim: claim.text[:30])
def test_every_claim_has_an_experiment_and_is_not_tested_without_runs(claim):
    assert claim.experiment in EXPERIMENTS
    assert claim.judge([]).verdict == "not tested"


def test_runs_that_do_not_count_are_left_out():
    def verdict(state):
        found = runs("global", [1.0, 1.1, 0.9], state=state) + runs("factorised", [0.0] * 3, state=state)
        found += runs("local", [0.0] * 3, state=state)
        (row,) = (
            row
            for row in claims_page({"uci-bnn": found}).blocks[2].rows
            if row[0].startswith("Global has a better ELBO than factorised")
        )
        return row[3].text

    assert verdict("converged") == "held"
    claim = next(claim for claim in claims() if claim.text.startswith("Global has a better ELBO than factorised"))
    old = runs("global", [1.0, 1.1], state="out of date") + runs("factorised", [0.0], state="converged")
    assert claim.judge(old) == (
        "not tested",
        "no runs of global and factorised in a common cell with 3 splits; runs that do not count: 2 out of date",
    )
    assert verdict("not converged") == verdict("out of date") == "not tested"


def run(posterior="global", elbo=0.0, metrics=None, **config):
    found = {"posterior": posterior, "prior": "neal", "split": 0} | config
    return {"config": found, "metrics": {"elbo_per_datapoint": elbo} | (metrics or {})}


def curves(mean):
    """Predictions on the toy problem: all but one posterior at a distance of one from HMC."""
    names = ("hmc", "factorised", "local", "global")
    lines = {name: [mean.get(name, 1.0)] * len(GRID) for name in names}
    return [run(name, metrics={"mean": line, "std": line}, num_data=40) for name, line in lines.items()]


def linear(elbo):
    names = ("factorised", "local", "global", "factorised->global", "prior->global")
    sizes = [(width, depth) for width in (5, 50, 250) for depth in (1, 16)]
    return [run(name, elbo(name, *size), width=size[0], depth=size[1]) for name in names for size in sizes]


def mnist(prior, elbos):
    names = ("factorised", "local", "factorised->global", "global")
    return [run(name, elbo, prior=prior) for name, elbo in zip(names, elbos, strict=True)]


def standard(*peaks_and_ends):
    found = mnist("standard", [0.0] * 4)
    for each, (peak, end) in zip(found, peaks_and_ends, strict=True):
        each["metrics"]["curve"] = [[1, 0, peak, 0], [2, 0, end, 0]]
    return found


def times(*ratios):
    names = ("local", "factorised->global", "global")
    return [run(name, metrics={"over_factorised": ratio}) for name, ratio in zip(names, ratios, strict=True)]


def falls(name, width, depth):
    """The ELBO of posteriors that factorise falls with depth and width, that of others grows with width."""
    return -width * (depth > 1) if name in ("factorised", "local") else width / 1000


CASES = {
    "nearest_to_hmc": (curves({"hmc": 0.0, "global": 0.1}), curves({"hmc": 0.0, "local": 0.1})),
    "ten_points_suffice": (
        [run(elbo=elbo, num_inducing=number) for number, elbo in ((2, -5.0), (10, -2.0), (40, -1.9))],
        [run(elbo=elbo, num_inducing=number) for number, elbo in ((2, -1.0), (10, -2.0), (40, -9.0))],
    ),
    "local_collapses": tuple(
        [run(name, metrics={"layer_variance": [value, 0.5 if name == "global" else 0.1]}) for name, value in both]
        for both in ((("global", 1.0), ("local", 0.1)), (("global", 0.1), ("local", 1.0)))
    ),
    "factorised_falls_with_size": (linear(falls), linear(lambda name, width, depth: -1 / width * depth)),
    "global_last_layer_falls_less": (linear(falls), linear(lambda name, width, depth: -depth)),
    "global_improves_with_width": (linear(falls), linear(lambda name, width, depth: -width)),
    "local_is_ahead_somewhere": tuple(
        [
            run(name, value, dataset="yacht", split=split)
            for split in range(3)
            for name, value in (("global", 0.0), ("local", elbo))
        ]
        for elbo in (1.0, -1.0)
    ),
    "only_global_escapes": tuple(
        mnist("scale", elbos) + mnist("spatial-iw", elbos) for elbos in ([-2.3, -2.3, -2.3, -1], [-2.3, -2, -2.3, -1])
    ),
    "standard_prior_is_below_guessing": (mnist("standard", [-9, -9, -9, -4]), mnist("standard", [-9, -9, -9, -2])),
    "factorised_is_transiently_best": (
        standard((90, 80), (50, 50), (91, 80), (70, 70)),
        standard((90, 80), (50, 50), (91, 91), (70, 70)),
    ),
    "similar_times": (times(1.7, 1.3, 3.4), times(1.7, 1.3, 9.0)),
}


@pytest.mark.parametrize("name", [name for name in tests.TESTS if name != "leads"])
def test_the_other_tests_tell_held_from_not_held(name):
    held, not_held = CASES[name]
    assert tests.TESTS[name](held).verdict == "held"
    assert tests.TESTS[name](not_held).verdict == "not held"
    with pytest.raises(MissingRunsError):
        tests.TESTS[name](held[:1])


def test_priors_are_compared_for_each_posterior():
    found = [
        run(name, value, prior=prior)
        for name, (a, b) in {"local": (1.0, 0.0), "global": (0.0, 1.0)}.items()
        for prior, value in (("neal", a), ("scale", b))
    ]
    assert "ahead in 1, behind in 1 of 2 cells" in leads(found, "neal", ["scale"], axis="prior").why
