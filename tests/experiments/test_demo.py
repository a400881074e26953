import json

import pytest
from rich.console import Console

from inducing.experiments.demo import demo


def test_the_demo_writes_its_figure_and_its_numbers(tmp_path, capsys):
    out = tmp_path / "new" / "folder"
    results = demo(out, 20, 0, Console(width=160))
    written = json.loads((out / "toy.json").read_text())
    assert list(written) == ["factorised", "local", "global", "factorised->global"]
    for result in results:
        numbers = written[result["config"]["posterior"]]
        assert set(numbers) == {"elbo_per_datapoint", "log_likelihood", "kl", "layer_variance"}
        assert len(numbers["layer_variance"]) == 3
        assert numbers["elbo_per_datapoint"] == pytest.approx(numbers["log_likelihood"] - numbers["kl"])
        assert numbers["elbo_per_datapoint"] == result["metrics"]["elbo_per_datapoint"]
    assert (out / "toy.png").read_bytes().startswith(b"\x89PNG")
    assert "-2.24" in capsys.readouterr().out, "the paper's ELBO stands beside ours"
    assert sorted(path.name for path in out.iterdir()) == ["toy.json", "toy.png"]
