"""Two processes on the loopback interface, as `torchrun` starts them. Starting them is most of the time, so one start serves many."""

import json
import os
import re
import signal
import subprocess
import sys
import time

import pytest
import torch

import inducing
from inducing.inference.distributed import ALONE, join

COMMON = """
import atexit, json, os, signal, sys, warnings
from pathlib import Path
import torch
import inducing
from inducing.inference import training
from inducing.inference.distributed import join
from inducing.linalg.noise import seeded

out = Path(sys.argv[1])
DOUBLE = {"dtype": torch.float64}
X = torch.linspace(-1, 1, 21, **DOUBLE)[:, None]
Y = X.sin() + 0.1 * torch.cos(40 * X)


def model(seed=0):
    torch.manual_seed(seed)
    return inducing.models.mlp(1, 1, [5], prior="scale", num_inducing=6).double(), inducing.Gaussian().double()


def fit(network, likelihood, data=(X, Y), **kwargs):
    settings = {"num_steps": 1, "num_samples": 3, "early_samples": None, "progress": False, "learning_rate": 1e-2, **kwargs}
    return inducing.fit(network, likelihood, data, **settings)


def learned(network, likelihood):
    return [p for module in (network, likelihood) for p in module.parameters() if p.requires_grad]


def flat(tensors):
    return torch.cat([tensor.detach().reshape(-1) for tensor in tensors])


def elastic(network, likelihood, num_steps=40, **kwargs):
    return fit(network, likelihood, num_steps=num_steps, batch_size=8, **kwargs)
"""

TOGETHER = (
    COMMON
    + """
results = {}


@atexit.register
def tell_threads():
    # registered before the ranks join, so called after they have left
    names = [path.read_text().strip() for path in Path("/proc/self/task").glob("*/comm")]
    (out / f"threads-{os.environ['RANK']}.json").write_text(json.dumps(names))


def gradient_after(steps=1, model=model, **kwargs):
    network, likelihood = model()
    history = fit(network, likelihood, num_steps=steps, **kwargs)
    return flat([p.grad for p in learned(network, likelihood)]), history.elbo


def by_hand(parallel, num_samples):
    '''What two ranks should find together, by one process: rank after rank.'''
    total, elbo = 0, 0
    for rank in range(2):
        network, likelihood = model()
        x, y = (X, Y) if parallel == "samples" else (X[rank::2], Y[rank::2])
        own = (num_samples + 1 - rank) // 2 if parallel == "samples" else num_samples
        share = own / num_samples if parallel == "samples" else 1 / 2
        noise = seeded(0, "posterior samples of step 0" + (" on rank 1" if rank else ""))
        draw = network.draw(own, noise)
        scale = 1 if parallel == "samples" else 2
        terms = inducing.ELBO(network, likelihood, 21).terms(
            draw, scale * likelihood.log_prob(draw(x), y).sum(-1)
        )
        (-share * terms.objective / 21).backward()
        total, elbo = total + flat([p.grad for p in learned(network, likelihood)]), elbo + share * terms.elbo / 21
    return total, [elbo.item()]


PICTURES = torch.randn(10, 1, 8, 8, generator=torch.Generator().manual_seed(0), **DOUBLE)
LABELS = torch.arange(10) % 3


def images():
    torch.manual_seed(0)
    network = inducing.models.lenet((1, 8, 8), 3, 2, inducing_points=PICTURES[:4], inducing_targets=LABELS[:4])
    return network, inducing.Categorical()


def deep_gp():
    torch.manual_seed(0)
    return inducing.models.deep_gp(1, 1, 2, inducing_points=X[::4].float()), inducing.Gaussian()


def distance(a, b):
    return max(((a[0] - b[0]).norm() / b[0].norm()).item(), abs(a[1][-1] - b[1][-1]) / abs(b[1][-1]))


weighted = (X, Y, torch.arange(1.0, 22, **DOUBLE))
optimal_start = {"optimal_start": False, "closed_form_kl": False}
for name, kwargs in {
    "whole batch": {},
    "minibatches": {"batch_size": 10, "steps": 6},
    "ranks without rows": {"batch_size": 4, "steps": 6},
    "weights": {"data": weighted, "batch_size": 10, "steps": 3},
    "images": {"model": images, "data": (PICTURES, LABELS), "batch_size": 7, "steps": 2},
    "dataset": {"data": torch.utils.data.TensorDataset(X, Y), "batch_size": 10, "steps": 3},
}.items():
    results[name] = distance(gradient_after(parallel="rows", **kwargs), gradient_after(parallel=None, **kwargs))
for parallel, num_samples in (("data", 3), ("samples", 3), ("samples", 4)):
    found = gradient_after(parallel=parallel, num_samples=num_samples, **optimal_start)
    results[f"{parallel} {num_samples}"] = distance(found, by_hand(parallel, num_samples))

# float64 inside, noise for every row
results["deep gp"] = gradient_after(steps=3, model=deep_gp, data=(X.float(), Y.float()))[0].tolist()

# first values may differ, and are then those of rank 0
network, likelihood = model(seed=int(os.environ["RANK"]))
seen = []
for p in learned(network, likelihood):
    p.register_post_accumulate_grad_hook(lambda p: seen.append(id(p)))
called = []
history = fit(
    network, likelihood, num_steps=9, callbacks=[lambda record: called.append(record.step), lambda record: record.step == 3]
)
results["first values"] = flat(learned(network, likelihood)).tolist()
results["without a gradient"] = [len(learned(network, likelihood)) - len(set(seen)), len(seen) / len(set(seen))]
results["called"] = called
results["steps"] = len(history)

# what is not learned, too
network, likelihood = model(seed=int(os.environ["RANK"]))
network.inducing_points.requires_grad_(False)
fit(network, likelihood, num_steps=2)
results["fixed values"] = flat([network.inducing_points, *learned(network, likelihood)]).tolist()

# rows that one rank alone cannot use: the script goes on
network, likelihood = model()
spoilt = X.clone()
spoilt[2] = float("nan")
try:
    fit(network, likelihood, torch.utils.data.TensorDataset(spoilt, Y), num_steps=2)
except (inducing.RankError, ValueError) as error:
    results["bad row"] = [type(error).__name__, str(error)]

# without a random_state all have the seed of rank 0
results["estimator"] = inducing.BNNRegressor(max_steps=2).fit(X.numpy(), Y.numpy()[:, 0]).predict(X.numpy()).tolist()

# one rank fails, all go back
for name, times in (("factorisation", 1), ("not a number", 1), ("never again", 100)):
    network, likelihood = model()
    calls = []
    if name == "factorisation":
        before = network.draw
        def draw(*args):
            calls.append(True)
            if os.environ["RANK"] == "1" and len(calls) == 4:
                raise inducing.FactorisationError("no factor.")
            return before(*args)
        network.draw = draw
    else:
        def spoil(gradient):
            calls.append(True)
            return gradient * float("nan") if os.environ["RANK"] == "1" and 4 <= len(calls) < 4 + times else gradient
        network.inducing_points.register_hook(spoil)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            history = fit(network, likelihood, num_steps=6)
            outcome = [record.learning_rate for record in history.records]
        except inducing.DivergenceError as error:
            outcome = str(error)
    results[name] = [outcome, flat(learned(network, likelihood)).tolist(), [str(w.message) for w in caught]]

# what does not fit together
network, likelihood = model()
rank = float(os.environ["RANK"])
def drift(record):
    with torch.no_grad():
        next(network.parameters()).add_(1e-3)
for name, kwargs in {
    "other data": {"data": (X, Y + rank)},
    "own shards": {"data": (X[int(rank) :: 2], Y[int(rank) :: 2])},
    "other seed": {"seed": int(rank)},
    "few samples": {"parallel": "samples", "num_samples": 1},
    "loader": {"data": torch.utils.data.DataLoader(torch.utils.data.TensorDataset(X, Y), 5, shuffle=True)},
    "drift": {"num_steps": 2, "callbacks": drift},
}.items():
    try:
        fit(network, likelihood, **kwargs)
    except (inducing.RankError, ValueError) as error:
        results[name] = str(error)

network, likelihood = model()
alone = inducing.predict(network, likelihood, X, 7).outputs
rows = inducing.predict(network, likelihood, X, 7, batch_size=4, parallel="rows").outputs
few = inducing.predict(network, likelihood, X[:1], 7, parallel="rows").outputs
samples = inducing.predict(network, likelihood, X, 7, parallel="samples").outputs
second = network.sample_functions(3, seeded(0, "functions on rank 1").initial_seed())(X)
expected = torch.cat([network.sample_functions(4, 0)(X), second])
results["predict"] = [(a - b).abs().max().item() for a, b in ((rows, alone), (few, alone[:, :1]), (samples, expected))]
try:
    inducing.predict(network, likelihood, X + rank, 7, parallel="rows")
except inducing.RankError as error:
    results["other inputs"] = str(error)

elbos = {}
for parallel in ("data", "samples", None):
    network, likelihood = model()
    fit(network, likelihood, num_steps=120, num_samples=4, learning_rate=3e-2, parallel=parallel)
    terms = inducing.evaluate(network, likelihood, (X, Y), 400)
    elbos[str(parallel)] = [(terms.elbo / 21).item(), (terms.samples.std() / 21 / 20).item()]
results["final elbo"] = elbos

network, likelihood = model()
elastic(network, likelihood)
torch.save(flat(learned(network, likelihood)), out / f"uninterrupted-{os.environ['RANK']}.pt")
(out / f"rank-{os.environ['RANK']}.json").write_text(json.dumps(results))
"""
)

KILLED = (
    COMMON
    + """
die_at = int(sys.argv[2])
network, likelihood = model()
backwards = []


def count(gradient):
    backwards.append(True)
    first_time = os.environ["TORCHELASTIC_RESTART_COUNT"] == "0"
    if os.environ["RANK"] == "1" and len(backwards) == die_at and first_time:
        os.kill(os.getpid(), signal.SIGKILL)


network.inducing_points.register_hook(count)
log = [inducing.JSONLog(out / "log.jsonl")] if inducing.distributed.is_first() else []
elastic(network, likelihood, num_steps=40 if die_at else 100_000, checkpoint=out / "run", checkpoint_seconds=0.0, callbacks=log)
torch.save(flat(learned(network, likelihood)), out / f"killed-{os.environ['RANK']}.pt")
print("took", len(backwards), "steps")
"""
)


def command(*arguments, restarts=0, interval=0.1):
    run = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    return [*run, "--max-restarts", str(restarts), "--monitor-interval", str(interval), *map(str, arguments)]


def environment():
    return {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "default"}


def launch(*arguments, **settings):
    return subprocess.run(
        command(*arguments, **settings),
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
        env=environment(),
    )


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("distributed")


@pytest.fixture(scope="module")
def found(folder):
    """What each of two ranks found, in one start of both."""
    (folder / "together.py").write_text(TOGETHER)
    done = launch(folder / "together.py", folder)
    assert done.returncode == 0, done.stderr[-4000:]
    return [json.loads((folder / f"rank-{rank}.json").read_text()) for rank in range(2)]


@pytest.mark.parametrize("case", ["whole batch", "minibatches", "ranks without rows", "weights", "images", "dataset"])
def test_with_the_same_noise_two_ranks_have_the_gradient_of_one(found, case):
    """In float64, with 21 rows: shards are uneven, and the last batch of an epoch may have a single row."""
    assert max(each[case] for each in found) < 1e-10


@pytest.mark.parametrize("case", ["data 3", "samples 3", "samples 4"])
def test_independent_samples_are_put_together_as_defined(found, case):
    """The gradient and the ELBO are the averages over ranks that one process computes one after another."""
    assert max(each[case] for each in found) < 1e-10


def test_deep_gaussian_processes_have_one_gradient(found):
    assert found[0]["deep gp"] == found[1]["deep gp"]
    assert all(abs(value) < float("inf") for value in found[0]["deep gp"])
    assert any(found[0]["deep gp"])


def test_no_parameter_goes_without_a_gradient(found):
    """Each has one gradient on each rank in each of the three steps."""
    assert [each["without a gradient"] for each in found] == [[0, 3.0], [0, 3.0]]


def test_first_values_are_those_of_rank_0_and_all_end_alike(found):
    assert found[0]["first values"] == found[1]["first values"]


def test_values_that_are_not_learned_are_those_of_rank_0(found):
    assert found[0]["fixed values"] == found[1]["fixed values"]


def test_rows_that_one_rank_cannot_use_are_told_by_all(found):
    """And the processes are in step afterwards: everything below ran."""
    kinds, reasons = zip(*(each["bad row"] for each in found), strict=True)
    assert sorted(kinds) == ["RankError", "ValueError"]
    assert all("x contains NaN or inf in 1 of" in reason for reason in reasons)


def test_an_estimator_needs_no_random_state(found):
    assert found[0]["estimator"] == found[1]["estimator"]


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="threads are listed by Linux")
def test_no_thread_of_the_process_group_is_left_at_exit(found, folder):
    """One that waits for Python's lock while the interpreter ends would abort the process."""
    for rank in range(2):
        names = json.loads((folder / f"threads-{rank}.json").read_text())
        assert names
        assert not [name for name in names if "gloo" in name]


def test_callbacks_are_called_on_rank_0_and_stop_all(found):
    assert [each["called"] for each in found] == [[1, 2, 3], []]
    assert [each["steps"] for each in found] == [3, 3]


@pytest.mark.parametrize(
    ("case", "reason"),
    [("factorisation", "rank 1: no factor"), ("not a number", "the gradient of network.inducing_points")],
)
def test_a_failure_on_one_rank_takes_all_of_them_back(found, case, reason):
    (rates, parameters, shown), (other_rates, other_parameters, hidden) = (each[case] for each in found)
    assert len(rates) == 6
    assert rates == other_rates
    assert parameters == other_parameters
    assert len(shown) == 1
    assert reason in shown[0]
    assert "roll-back number 1" in shown[0]
    assert not hidden


def test_all_ranks_give_up_together(found):
    outcomes = [each["never again"][0] for each in found]
    assert outcomes[0] == outcomes[1]
    assert "the gradient of network.inducing_points is not finite" in outcomes[0]
    assert found[0]["never again"][1] == found[1]["never again"][1]


@pytest.mark.parametrize(
    ("case", "message"),
    [
        ("other data", "rank 1 was given something else than rank 0, with other data. Give all processes all the data"),
        ("own shards", r"with other num_data \(10 and not 11\), data.*fit divides the batches itself"),
        ("other seed", r"with other seed \(1 and not 0\)"),
        ("few samples", "1 posterior samples cannot be divided over 2 processes; raise num_samples"),
        ("loader", r"the order of this DataLoader is another one on each process.*generator=torch.Generator\(\)"),
        ("drift", "after step 2 the parameters of rank 1 differ from those of rank 0"),
        ("other inputs", "rank 1 was given something else than rank 0, with other x"),
    ],
)
def test_what_does_not_fit_together_is_refused_by_all(found, case, message):
    for each in found:
        assert re.search(message, each[case])


def test_predictions_are_divided(found):
    """By rows they are those of one process; by samples, those of each rank's own draws."""
    assert max(max(each["predict"]) for each in found) < 1e-12


def test_the_final_elbo_is_that_of_one_process(found):
    """Within what 120 steps of Adam with other noise leave, and the error of the evaluation."""
    elbos = found[0]["final elbo"]
    expected, error = elbos["None"]
    for parallel in ("data", "samples"):
        elbo, other = elbos[parallel]
        assert abs(elbo - expected) < 4 * (error + other) + 0.1


def test_a_killed_rank_and_what_the_user_sees(found, folder):
    """The others end with a message; started again, killed again and restarted by torchrun, the run ends as if never killed."""
    (folder / "killed.py").write_text(KILLED)
    # torchrun ends rank 0 when it looks and finds rank 1 gone; on a busy machine a tenth of a second is short for a message
    done = launch(folder / "killed.py", folder, 15, interval=3)
    assert done.returncode != 0
    assert "RankError: step 15, rank 0 of 2: another process of this run has ended or cannot be reached" in done.stderr
    assert "Why is in its own error, or in torchrun's summary" in done.stderr
    assert f"the same command continues from {folder / 'run'}" in done.stderr
    assert re.search(r"Signal 9 \(SIGKILL\)", done.stderr)
    assert (folder / "run" / "step-000000014.safetensors").exists()

    done = launch(folder / "killed.py", folder, 10, restarts=1)
    assert done.returncode == 0, done.stderr[-4000:]
    # 14 steps by the first start, then 9, and 17 after the restart
    assert re.findall(r"took (\d+) steps", done.stdout) == ["17", "17"]
    whole = torch.load(folder / "uninterrupted-0.pt")
    assert all(torch.equal(torch.load(folder / f"killed-{rank}.pt"), whole) for rank in range(2))
    steps = [json.loads(line)["step"] for line in (folder / "log.jsonl").read_text().splitlines()]
    assert steps == list(range(1, 41))


def test_a_signal_stops_all_ranks_after_the_same_step(tmp_path):
    (tmp_path / "killed.py").write_text(KILLED)
    process = subprocess.Popen(
        command(tmp_path / "killed.py", tmp_path, 0), stderr=subprocess.PIPE, text=True, env=environment()
    )
    while len(list((tmp_path / "run").glob("step-*"))) < 2 and process.poll() is None:
        time.sleep(0.05)
    process.send_signal(signal.SIGTERM)
    _, shown = process.communicate(timeout=300)
    assert process.returncode != 0
    steps = re.findall(r"stopped after step (\d+); the same command continues from", shown)
    assert len(steps) == 2
    newest = sorted((tmp_path / "run").glob("step-*"))[-1]
    assert {int(step) for step in steps} == {int(newest.stem.removeprefix("step-"))}


def test_reproduce_runs_on_all_and_reports_once(tmp_path):
    arguments = ("-m", "inducing", "reproduce", "linear", "--preset", "smoke", "--out", tmp_path)
    done = launch(*arguments)
    assert done.returncode == 0, done.stderr[-4000:]
    assert done.stdout.count("finished before") == 1
    results = [json.loads(line) for line in (tmp_path / "linear.jsonl").read_text().splitlines()]
    assert len(results) == len({result["key"] for result in results}) > 0


def test_without_torchrun_a_process_is_alone(monkeypatch):
    assert join() is ALONE
    # started by torchrun as the only process
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("WORLD_SIZE", "1")
    assert join() is ALONE
    assert inducing.distributed.is_first()
    assert (ALONE.maximum(3, 4), ALONE.broadcast("a"), ALONE.gather("a")) == ([3, 4], "a", ["a"])


@pytest.mark.parametrize("parallel", ["data", "samples", "rows", None])
def test_one_process_has_the_same_numbers_whatever_would_be_divided(parallel):
    x = torch.linspace(-1, 1, 20)[:, None]
    torch.manual_seed(0)
    network = inducing.models.mlp(1, 1, [5], num_inducing=6)
    history = inducing.fit(network, inducing.Gaussian(), (x, x), num_steps=3, parallel=parallel, progress=False)
    torch.manual_seed(0)
    network = inducing.models.mlp(1, 1, [5], num_inducing=6)
    assert history.elbo == inducing.fit(network, inducing.Gaussian(), (x, x), num_steps=3, progress=False).elbo


def test_a_distributed_sampler_is_not_needed():
    dataset = torch.utils.data.TensorDataset(torch.zeros(4, 1), torch.zeros(4, 1))
    sampler = torch.utils.data.DistributedSampler(dataset, num_replicas=2, rank=0)
    network = inducing.models.mlp(1, 1, [5], num_inducing=3)
    loader = torch.utils.data.DataLoader(dataset, sampler=sampler)
    with pytest.raises(ValueError, match="has a DistributedSampler; give every process all the data, without it"):
        inducing.fit(network, inducing.Gaussian(), loader, num_steps=1)
