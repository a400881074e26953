"""The ledger of claims, on made-up runs."""

import pytest

from inducing.experiments.claims import CLAIMS, claims_page, leads
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
        ([], "not tested"),
    ],
)
def test_a_lead_is_larger_than_two_standard_errors_over_common_splits(global_elbos, verdict):
    results = runs("global", global_elbos) + runs("factorised", [0.0, 0.0, 0.0, 9.0])
    assert leads("global", "factorised")(results).verdict == verdict


def test_a_lead_in_a_share_of_the_cells():
    results = runs("global", [1.0]) + runs("factorised", [0.0])
    results += runs("global", [0.0], "yacht") + runs("factorised", [1.0], "yacht")
    ruling = leads("global", "factorised", share=0.5)(results)
    assert ruling == ("held", "ELBO: global over factorised: ahead in 1, behind in 1 of 2 cells")
    assert leads("global", "factorised", share=0.6)(results).verdict == "not held"
    assert leads("global", "factorised", dataset="boston")(results).verdict == "held"


def test_every_claim_has_an_experiment_and_a_verdict_without_runs():
    assert {claim.experiment for claim in CLAIMS} <= {*EXPERIMENTS, ""}
    assert {claim.check([]).verdict for claim in CLAIMS} == {"not tested"}


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
