"""All experiments by name."""

from __future__ import annotations

from inducing.experiments.compositional_bnn import COMPOSITIONAL_BNN
from inducing.experiments.compositional_dgp import COMPOSITIONAL_DGP
from inducing.experiments.engine.experiment import Experiment
from inducing.experiments.images import CIFAR10, MNIST500, RESNET18
from inducing.experiments.linear import LINEAR
from inducing.experiments.toy import TOY
from inducing.experiments.toy_num_inducing import NUM_INDUCING
from inducing.experiments.uci_bnn import UCI_BNN
from inducing.experiments.uci_dgp import UCI_DGP

_TOY = (TOY, NUM_INDUCING, COMPOSITIONAL_BNN, COMPOSITIONAL_DGP, LINEAR)
_ALL = (*_TOY, UCI_BNN, UCI_DGP, MNIST500, CIFAR10, RESNET18)
EXPERIMENTS: dict[str, Experiment] = {experiment.name: experiment for experiment in _ALL}
