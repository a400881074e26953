"""Two processes on the loopback interface, with the variables that `torchrun` sets; one test has them started by `torchrun`."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

import inducing
from inducing.inference.parallel.ranks import ALONE, join
from tests import processes

SCRIPTS = Path(__file__).parent / "scripts"


def variables(rank, port):
    """What `torchrun` tells a process, of two on one machine."""
    return {
        "RANK": str(rank),
        "LOCAL_RANK": str(rank),
        "WORLD_SIZE": "2",
        "GROUP_WORLD_SIZE": "1",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
        "TORCHELASTIC_RESTART_COUNT": "0",
        "OMP_NUM_THREADS": "1",
    }


def free_port():
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        return unused.getsockname()[1]


def both(target, *arguments):
    """Call a function in two ranks and wait for them."""
    port = free_port()
    return processes.run_all([(variables(rank, port), target, *arguments) for rank in range(2)])


def torchrun(*arguments, restarts):
    run = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    return subprocess.run(
        [*run, "--max-restarts", str(restarts), "--monitor-interval", "0.1", *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
        env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "default"},
    )


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("distributed")


@pytest.fixture(scope="module")
def found(folder):
    """What each of two ranks found, in one start of both."""
    for done in both(processes.script, SCRIPTS / "together.py", folder):
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


def test_leaving_does_not_hang_while_a_message_is_freed():
    """torch 2.6 often did within a few hundred attempts. The process is killed after a minute."""
    (finished,) = processes.run_all([({}, processes.script, SCRIPTS / "leave.py")], seconds=60)
    assert finished.returncode == 0, finished.stderr[-4000:]


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
    assert "roll-back 1" in shown[0]
    assert not hidden


def test_all_ranks_give_up_together(found):
    outcomes = [each["never again"][0] for each in found]
    assert outcomes[0] == outcomes[1]
    assert "the gradient of network.inducing_points is not finite" in outcomes[0]
    assert found[0]["never again"][1] == found[1]["never again"][1]


@pytest.mark.parametrize(
    ("case", "message"),
    [
        ("other data", "rank 1 has other arguments than rank 0: data"),
        ("own shards", r"num_data \(10 and not 11\), data.*fit divides the batches itself"),
        ("other seed", r"seed \(1 and not 0\)"),
        ("few samples", "1 posterior samples cannot be divided over 2 processes"),
        ("loader", r"the order of this DataLoader differs.*generator=torch.Generator\(\)"),
        ("drift", "after step 2 the parameters of rank 1 differ from those of rank 0"),
        ("other inputs", "rank 1 has other arguments than rank 0: x"),
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
    first, second = both(processes.script, SCRIPTS / "killed.py", folder, 15)
    assert (first.returncode, second.returncode) == (1, -signal.SIGKILL)
    assert "RankError: step 15, rank 0 of 2: another process of this run has ended" in first.stderr
    assert f"the same command continues from {folder / 'run'}" in first.stderr
    assert (folder / "run" / "step-000000014.safetensors").exists()

    done = torchrun(SCRIPTS / "killed.py", folder, 10, restarts=1)
    assert done.returncode == 0, done.stderr[-4000:]
    # 14 steps by the first start, then 9, and 17 after the restart
    assert re.findall(r"took (\d+) steps", done.stdout) == ["17", "17"]
    whole = torch.load(folder / "uninterrupted-0.pt")
    assert all(torch.equal(torch.load(folder / f"killed-{rank}.pt"), whole) for rank in range(2))
    steps = [json.loads(line)["step"] for line in (folder / "log.jsonl").read_text().splitlines()]
    assert steps == list(range(1, 41))


def test_a_signal_stops_all_ranks_after_the_same_step(tmp_path):
    port, errors = free_port(), [tmp_path / f"errors-{rank}" for rank in range(2)]
    started = [
        processes.start(
            processes.script, SCRIPTS / "killed.py", tmp_path, 0, errors=errors[rank], variables=variables(rank, port)
        )
        for rank in range(2)
    ]
    while len(list((tmp_path / "run").glob("step-*"))) < 2 and all(process.is_alive() for process in started):
        time.sleep(0.02)
    for process in started:
        os.kill(process.pid, signal.SIGTERM)
    assert [processes.wait(process, 300) for process in started] == [1, 1]
    steps = [
        re.search(r"stopped after step (\d+); the same command continues from", path.read_text()).group(1)
        for path in errors
    ]
    newest = sorted((tmp_path / "run").glob("step-*"))[-1]
    assert {int(step) for step in steps} == {int(newest.stem.removeprefix("step-"))}


def test_reproduce_runs_on_all_and_reports_once(tmp_path):
    finished = both(
        processes.command, "reproduce", "linear", "--preset", "smoke", "--out", tmp_path, "--only", "depth=1"
    )
    for done in finished:
        assert done.returncode == 0, done.stderr[-4000:]
    assert sum(done.stdout.count("finished before") for done in finished) == 1
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
    with pytest.raises(ValueError, match="has a DistributedSampler"):
        inducing.fit(network, inducing.Gaussian(), loader, num_steps=1)
