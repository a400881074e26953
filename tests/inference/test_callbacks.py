import json

import torch
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

import inducing

X = torch.linspace(-1, 1, 20)[:, None]


def fit(*callbacks, **kwargs):
    torch.manual_seed(0)
    net = inducing.models.mlp(1, 1, [5], num_inducing=6)
    return inducing.fit(net, inducing.Gaussian(), (X, X), num_steps=6, progress=False, callbacks=callbacks, **kwargs)


def test_the_log_holds_every_step(tmp_path):
    history = fit(inducing.JSONLog(tmp_path / "log.jsonl"))
    lines = [json.loads(line) for line in (tmp_path / "log.jsonl").read_text().splitlines()]
    assert [line["step"] for line in lines] == [1, 2, 3, 4, 5, 6]
    assert set(lines[0]) == set(inducing.Record._fields)
    assert [line["elbo"] for line in lines] == history.elbo


def test_every_other_step(tmp_path):
    fit(inducing.JSONLog(tmp_path / "log.jsonl", every=2))
    assert [json.loads(line)["step"] for line in (tmp_path / "log.jsonl").read_text().splitlines()] == [2, 4, 6]


def test_steps_taken_again_replace_their_lines(tmp_path):
    path = tmp_path / "log.jsonl"
    history = fit(inducing.JSONLog(path))
    log = inducing.JSONLog(path)
    with path.open("a") as file:
        file.write('{"step": 7, "el')
    log(history[3])
    assert [json.loads(line)["step"] for line in path.read_text().splitlines()] == [1, 2, 3, 4]


def test_tensorboard(tmp_path):
    history = fit(inducing.TensorBoard(tmp_path, every=2))
    events = EventAccumulator(str(tmp_path)).Reload()
    scalars = events.Scalars("elbo")
    assert [event.step for event in scalars] == [2, 4, 6]
    assert abs(scalars[-1].value - history[-1].elbo) < 1e-5
    assert {"kl/0", "kl/1", "gradient_norm", "jitter"} <= set(events.Tags()["scalars"])


def test_a_callback_with_three_arguments_sees_the_model():
    network, likelihood, seen = inducing.models.mlp(1, 1, [5], num_inducing=6), inducing.Gaussian(), []

    def score(record, model, noise, every=2):
        if record.step % every == 0:
            seen.append((record.step, model, noise, inducing.predict(model, noise, X, 2).mean))
        return record.step == 4

    records = []
    settings = {"num_steps": 6, "progress": False, "callbacks": [score, records.append]}
    history = inducing.fit(network, likelihood, (X, X), **settings)
    assert [each[0] for each in seen] == [2, 4]
    assert all(each[1] is network and each[2] is likelihood for each in seen)
    assert not torch.equal(seen[0][3], seen[1][3])
    assert records == history.records
    assert len(records) == 4
