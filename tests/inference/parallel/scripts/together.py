"""Everything that two ranks can show in one start; each writes what it found into a file of the folder it is given."""

import atexit
import json
import os
import warnings
from pathlib import Path

import torch
from common import DOUBLE, OUT, X, Y, elastic, fit, flat, learned, model

import inducing
from inducing.linalg.noise import seeded

results = {}


@atexit.register
def tell_threads():
    """Registered before the ranks join, so called after they have left."""
    names = [path.read_text().strip() for path in Path("/proc/self/task").glob("*/comm")]
    (OUT / f"threads-{os.environ['RANK']}.json").write_text(json.dumps(names))


def gradient_after(steps=1, model=model, **kwargs):
    network, likelihood = model()
    history = fit(network, likelihood, num_steps=steps, **kwargs)
    return flat([p.grad for p in learned(network, likelihood)]), history.elbo


def by_hand(parallel, num_samples):
    """What two ranks should find together, by one process: rank after rank."""
    total, elbo = 0, 0
    for rank in range(2):
        network, likelihood = model()
        x, y = (X, Y) if parallel == "samples" else (X[rank::2], Y[rank::2])
        own = (num_samples + 1 - rank) // 2 if parallel == "samples" else num_samples
        share = own / num_samples if parallel == "samples" else 1 / 2
        noise = seeded(0, "posterior samples of step 0" + (" on rank 1" if rank else ""))
        draw = network.draw(own, noise)
        scale = 1 if parallel == "samples" else 2
        terms = inducing.ELBO(network, likelihood, 21).terms(draw, scale * likelihood.log_prob(draw(x), y).sum(-1))
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
    network,
    likelihood,
    num_steps=9,
    callbacks=[lambda record: called.append(record.step), lambda record: record.step == 3],
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
def fail_to_factorise(network, count):
    calls, before = [], network.draw

    def draw(*args, **kwargs):
        calls.append(True)
        if os.environ["RANK"] == "1" and 4 <= len(calls) < 4 + count:
            raise inducing.FactorisationError("no factor.")
        return before(*args, **kwargs)

    network.draw = draw


def spoil_gradients(network, count):
    calls = []

    def spoil(gradient):
        calls.append(True)
        return gradient * float("nan") if os.environ["RANK"] == "1" and 4 <= len(calls) < 4 + count else gradient

    network.inducing_points.register_hook(spoil)


for name, spoil, count in (
    ("factorisation", fail_to_factorise, 1),
    ("not a number", spoil_gradients, 1),
    ("never again", spoil_gradients, 100),
):
    network, likelihood = model()
    spoil(network, count)
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
torch.save(flat(learned(network, likelihood)), OUT / f"uninterrupted-{os.environ['RANK']}.pt")
(OUT / f"rank-{os.environ['RANK']}.json").write_text(json.dumps(results))
