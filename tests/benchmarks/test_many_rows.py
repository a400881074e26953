"""The benchmark of networks on many rows."""

import inducing
from benchmarks import many_rows


def test_the_models_of_the_variants():
    assert many_rows.make_model("default").random_state == 0
    assert many_rows.make_model("another seed").random_state == 1
    assert many_rows.make_model("Gaussian tails", likelihood="heteroscedastic").likelihood == "heteroscedastic"
    assert isinstance(many_rows.make_model("deep GP"), inducing.DeepGPRegressor)
    for variant, number in many_rows.NUM_NETWORKS.items():
        model = many_rows.make_model(variant)
        assert len(model.candidates) == len(model.weights) == number


def test_the_page_has_a_row_for_each_result_and_describes_its_variants():
    record = {"rows": 3000, "log_likelihood": 1.0, "rmse": 0.5, "coverage_90": 0.9, "cpu_seconds": 60}
    records = [record | {"set": "sml", "variant": variant} for variant in ("default", "two networks")]
    page = many_rows.page(records)
    assert "| sml | 3,000 | two networks | 1.000 | 0.5000 | 0.900 | 60 |" in page
    assert "- two networks: `AutoRegressor` of two networks" in page
    assert "three networks" not in page
