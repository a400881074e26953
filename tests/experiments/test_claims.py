"""The ledger of claims, on made-up runs."""

import pytest

from inducing.experiments.claims import MissingRunsError, claims, claims_page, leads
from inducing.experiments.engine.registry import EXPERIMENTS


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
        ([0.0, 0.01, 0.0], "not held"),
        ([-1.0, 3.0, -1.0], "not held"),
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
        found = runs("global", [1.0], state=state) + runs("factorised", [0.0], state=state)
        found += runs("local", [0.0], state=state)
        (row,) = (
            row
            for row in claims_page({"uci-bnn": found}).blocks[1].rows
            if row[0].startswith("Global has a better ELBO than factorised")
        )
        return row[3].text

    assert verdict("converged") == "held"
    assert verdict("not converged") == verdict("out of date") == "not tested"
