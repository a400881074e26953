"""All experiments by name."""

from __future__ import annotations

from inducing.experiments.compositional_bnn import COMPOSITIONAL_BNN
from inducing.experiments.compositional_dgp import COMPOSITIONAL_DGP
from inducing.experiments.epoch_times import EPOCH_TIMES
from inducing.experiments.images import CIFAR10, FASHION500, MNIST500, RESNET18
from inducing.experiments.linear import LINEAR
from inducing.experiments.toy import NUM_INDUCING, TOY
from inducing.experiments.uci_bnn import UCI_BNN
from inducing.experiments.uci_dgp import UCI_DGP

TOYS = (TOY, NUM_INDUCING, COMPOSITIONAL_BNN, COMPOSITIONAL_DGP, LINEAR)
EXPERIMENTS = {
    each.name: each for each in (*TOYS, UCI_BNN, UCI_DGP, MNIST500, FASHION500, CIFAR10, RESNET18, EPOCH_TIMES)
}
