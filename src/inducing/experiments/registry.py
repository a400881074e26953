"""All experiments by name."""

from __future__ import annotations

from inducing.experiments.compositional import COMPOSITIONAL_DGP
from inducing.experiments.experiment import Experiment
from inducing.experiments.images import CIFAR10, MNIST500, RESNET18
from inducing.experiments.linear import LINEAR
from inducing.experiments.toy import COMPOSITIONAL, NUM_INDUCING
from inducing.experiments.toy_hmc import TOY
from inducing.experiments.uci_bnn import UCI_BNN
from inducing.experiments.uci_dgp import UCI_DGP

EXPERIMENTS: dict[str, Experiment] = {
    each.name: each
    for each in (
        TOY,
        NUM_INDUCING,
        COMPOSITIONAL,
        COMPOSITIONAL_DGP,
        LINEAR,
        UCI_BNN,
        UCI_DGP,
        MNIST500,
        CIFAR10,
        RESNET18,
    )
}
