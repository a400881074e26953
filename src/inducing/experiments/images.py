"""Image classification: MNIST-500, CIFAR-10 and ResNet-18.

What to look for: with 500 images a factorised posterior is hardly better than guessing, an ELBO of log(1/10) = -2.30 nats,
if the prior lets it shrink the weights; global inducing points learn. On CIFAR-10 the ELBO improves from factorised over
factorised->global to global, and so do the predictions, on images of another kind (SVHN) too.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from pathlib import Path

import torch
from torch import Tensor

from inducing.data import images
from inducing.experiments.experiment import Experiment, Metrics
from inducing.experiments.image_report import POSTERIORS, comparison, report
from inducing.experiments.toy import nats
from inducing.inference.objective import evaluate
from inducing.inference.training import fit
from inducing.nn.likelihoods import Categorical
from inducing.nn.models import lenet, resnet8, resnet18
from inducing.nn.network import Network
from inducing.prediction.metrics import (
    accuracy,
    auroc,
    calibration_curve,
    entropy,
    expected_calibration_error,
    log_likelihood,
)
from inducing.prediction.predictive import Predictive, predict

MODELS = {"lenet": lenet, "resnet8": resnet8, "resnet18": resnet18}


@dataclass(frozen=True)
class Mnist500:
    """The paper's settings: the appendix "MNIST 500". It does not say how many steps, and how many inducing images."""

    dataset: str = "mnist"
    model: str = "lenet"
    posterior: str = "global"
    prior: str = "scale"
    channels: int = 64
    num_data: int = 500
    num_inducing: int = 500
    recipe: str = "paper:mnist500"
    num_steps: int = 10_000
    batch_size: int = 500
    learning_rate: float = 1e-3
    train_samples: int = 1
    test_samples: int = 10
    num_test: int = 10_000
    kl_warmup_epochs: int = 0
    temperature: float = 1.0
    augment: bool = False
    unknown: str = ""
    split: int = 0


@dataclass(frozen=True)
class Cifar10(Mnist500):
    """The paper's settings: Section 4.4 and the appendix "Additional experimental details"."""

    dataset: str = "cifar10"
    model: str = "resnet8"
    prior: str = "spatial-iw"
    channels: int = 32
    num_data: int = 50_000
    recipe: str = "paper:cifar10"
    num_steps: int = 100_000
    learning_rate: float = 1e-2
    kl_warmup_epochs: int = 100
    unknown: str = "svhn"


@dataclass(frozen=True)
class ResNet18(Cifar10):
    """ResNet-18 with augmented images and a cold posterior, the KL divided by 20."""

    model: str = "resnet18"
    channels: int = 64
    temperature: float = 0.05
    augment: bool = True


def run(config: Mnist500, checkpoint: Path | None = None, progress: bool = True) -> Metrics:
    """Fit one network. The split is the seed of everything."""
    train, test = images.load(config.dataset), images.load(config.dataset, train=False)
    unknown = [images.load(config.unknown, train=False)] if config.unknown else []
    # by the statistics of all training images, also where only some are used
    train, test, *unknown = images.normalise(train, test, *unknown)
    black = train.x.amin((0, 2, 3))
    x, y = train.x[: config.num_data].clone(), train.y[: config.num_data]
    network, likelihood = _network(config, x, y), Categorical()
    fit(
        network,
        likelihood,
        (x, y),
        config.recipe,
        num_steps=config.num_steps,
        num_samples=config.train_samples,
        early_samples=None,
        batch_size=config.batch_size,
        learning_rate=config.learning_rate,
        kl_warmup_epochs=config.kl_warmup_epochs,
        temperature=config.temperature,
        augment=partial(images.augment, fill=black) if config.augment else None,
        seed=config.split,
        checkpoint=checkpoint,
        progress=progress,
        description=f"{config.dataset} {config.prior} {config.posterior}",
    )
    terms = evaluate(network, likelihood, (x, y), config.test_samples, config.split, batch_size=500)
    looked_at = [_predict(config, network, likelihood, rows.x[: config.num_test]) for rows in (test, *unknown)]
    return {**nats(terms), **_figures(looked_at, test.y[: config.num_test])}


def _network(config: Mnist500, x: Tensor, y: Tensor) -> Network:
    return MODELS[config.model](
        tuple(x.shape[1:]),
        10,
        config.channels,
        prior=config.prior,
        posterior=config.posterior,
        # the first batch
        inducing_points=x[: config.num_inducing],
        inducing_targets=y[: config.num_inducing],
        generator=torch.Generator().manual_seed(config.split),
    )


def _predict(config: Mnist500, network: Network, likelihood: Categorical, x: Tensor) -> Predictive:
    return predict(network, likelihood, x, config.test_samples, batch_size=500, seed=config.split)


def _figures(predictives: list[Predictive], y: Tensor) -> Metrics:
    known, *unknown = predictives
    curve = calibration_curve(known, y)
    found: Metrics = {
        "test_log_likelihood": log_likelihood(known, y),
        "accuracy": 100 * accuracy(known, y),
        "ece": expected_calibration_error(known, y),
        "calibration": [
            [round(confidence, 4), round(right, 4), rows]
            for confidence, right, rows in zip(*(part.tolist() for part in curve), strict=True)
            if rows
        ],
        "entropy": float(entropy(known).mean()),
    }
    for predictive in unknown:
        doubt = entropy(predictive)
        found["entropy_unknown"] = float(doubt.mean())
        found["entropy_ratio"] = found["entropy"] / found["entropy_unknown"]
        found["auroc"] = auroc(entropy(known), doubt)
    return found


_SMOKE = {
    "channels": 2,
    "num_data": 20,
    "num_inducing": 4,
    "num_steps": 2,
    "batch_size": 10,
    "test_samples": 2,
    "num_test": 10,
}

MNIST500 = Experiment(
    "mnist500",
    "the paper's appendix: the first 500 images of MNIST, four priors and four posteriors",
    Mnist500,
    {"prior": ("standard", "neal", "scale", "spatial-iw"), "posterior": POSTERIORS},
    run,
    report,
    {
        "smoke": {**_SMOKE, "prior": ("scale", "spatial-iw")},
        "cpu": {"channels": 16, "num_inducing": 100, "recipe": "fast", "num_steps": 500, "learning_rate": 1e-2},
    },
)
CIFAR10 = Experiment(
    "cifar10",
    "the paper's table of CIFAR-10: a residual network of 8 layers, no augmentation, no tempering",
    Cifar10,
    {"prior": ("spatial-iw", "scale"), "posterior": POSTERIORS},
    run,
    report,
    {
        "smoke": {**_SMOKE, "prior": ("spatial-iw",), "kl_warmup_epochs": 1},
        "cpu": {
            "channels": 16,
            "num_data": 5000,
            "num_inducing": 50,
            "recipe": "fast",
            "num_steps": 300,
            "batch_size": 100,
            "learning_rate": 3e-2,
            "num_test": 2000,
            "kl_warmup_epochs": 1,
        },
    },
    comparison=comparison({"dataset": "cifar10", "model": "resnet8"}),
)
RESNET18 = Experiment(
    "cifar10-resnet18",
    "ResNet-18 on CIFAR-10 with augmentation and a cold posterior; global in every layer is not in the paper",
    ResNet18,
    {"posterior": ("factorised", "factorised->global", "global")},
    run,
    report,
    {
        "smoke": {**_SMOKE, "kl_warmup_epochs": 1},
        "cpu": {
            "num_data": 2000,
            "num_inducing": 64,
            "recipe": "fast",
            "num_steps": 10,
            "batch_size": 32,
            "num_test": 200,
            "test_samples": 2,
            "kl_warmup_epochs": 0,
        },
    },
    comparison=comparison({"dataset": "cifar10", "model": "resnet18"}),
)
