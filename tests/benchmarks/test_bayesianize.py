"""The comparison of a plain network with Bayesian ones runs, and its page and figure have all methods."""

import pytest
import torch

from benchmarks import bayesianize
from benchmarks.plain_resnet import resnet8, trained


@pytest.fixture
def problem():
    generator = torch.Generator().manual_seed(0)
    module = resnet8(2).eval()

    def part(count):
        x, y = torch.randn(count, 3, 32, 32, generator=generator), torch.randint(0, 10, (count,), generator=generator)
        return bayesianize.run_modules(module, x, y)

    return bayesianize.Problem(module, 1.0, part(40), part(20), part(30), part(10))


# features of a network that is not trained are small
@pytest.mark.filterwarnings("ignore::inducing.DataWarning")
def test_all_methods_in_short(problem, monkeypatch, tmp_path):
    monkeypatch.setattr(bayesianize, "FIGURE", tmp_path / "bayesianize.png")
    monkeypatch.setattr(bayesianize, "NUM_INDUCING", 12)
    results = []
    for name, (_, trials) in bayesianize.METHODS.items():
        if not name.startswith("Laplace"):
            short = {"num_steps": 2, "batch_size": 20} if "num_steps" in trials[0] else {}
            results.append(bayesianize.measure(problem, name, trials[0] | short))
    # laplace-torch is not needed by the tests
    results += [results[0] | {"method": name} for name in bayesianize.METHODS if name.startswith("Laplace")]
    rows = bayesianize.page(results).splitlines()[-len(bayesianize.METHODS) :]
    assert [row.split(" | ")[0].removeprefix("| ") for row in rows] == list(bayesianize.METHODS)
    bayesianize.draw(results)
    assert bayesianize.FIGURE.exists()


def test_held_out_images_choose_the_trial():
    results = [{"method": name, "held_out": value} for name in bayesianize.METHODS for value in (-2.0, -1.0, -3.0)]
    assert all(each["held_out"] == -1.0 for each in bayesianize.best(results).values())


def test_the_plain_network_is_kept(tmp_path):
    generator = torch.Generator().manual_seed(0)
    x, y = torch.randn(100, 3, 32, 32, generator=generator), torch.randint(0, 10, (100,), generator=generator)
    first, seconds = trained(tmp_path, x, y, epochs=1)
    again, same_seconds = trained(tmp_path, x, y, epochs=1)
    assert seconds == same_seconds
    with torch.no_grad():
        assert torch.equal(first(x), again(x))
