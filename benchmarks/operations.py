"""The floor: floating-point operations that a workload needs, however its code is arranged.

A multiplication and an addition are two operations. Only half of a symmetric matrix counts. What all samples share
counts once, as does what all outputs share. Elementwise work, noise and the optimiser are left out, so no program
reaches the floor.
"""

from __future__ import annotations

from itertools import pairwise


def dense(widths: list[int], num_data: int, num_inducing: int, num_samples: int, *, per_output: bool) -> float:
    """A training step of a fully connected network with global inducing points, forward and backward."""
    total, distinct = 0.0, 1
    for fan_in, outputs in pairwise(widths):
        total += regression(num_inducing, fan_in + 1, outputs, distinct, outputs if per_output else 1, num_samples)
        # inducing points: forward, to the weights, to the inputs; data: the first layer's inputs need no gradient
        inducing = 3 * 2 * num_samples * num_inducing * fan_in * outputs
        data = (2 if distinct == 1 else 3) * 2 * num_samples * num_data * fan_in * outputs
        total, distinct = total + inducing + data, num_samples
    return total


def regression(rows: int, features: int, outputs: int, distinct: int, groups: int, samples: int) -> float:
    """Bayesian linear regression in the cheaper form, forward and backward.

    Arguments:
        rows: n.
        features: F.
        outputs: Columns of the weights.
        distinct: Different X: 1 in the first layer, else S.
        groups: Different Lambda: the outputs, or 1.
        samples: S.
    """
    size, other = min(rows, features), max(rows, features)
    # half of X'X (or of XX'); backward X times a symmetric matrix
    gram = distinct * groups * (other * size**2 + 2 * other * size**2)
    # size^3 / 3 for the factor; backward 2 size^3 / 3 for the inverse, which is the gradient of the log-determinant
    factor = distinct * groups * size**3
    # X' Lambda v, and twice that backward
    cross = 3 * 2 * distinct * rows * features * outputs
    # two triangular solves, and again two backward; then a product of two vectors, half of a symmetric matrix
    solves = samples * outputs * (2 * 2 * size**2 + size**2)
    # the dual form takes a weight to the rows and back, too: forward and backward
    between = 2 * 3 * 2 * samples * outputs * rows * features if rows < features else 0
    return gram + factor + cross + solves + between


def convolution_gram(images: int, channels: int, pixels: int, kernel_size: int) -> float:
    """X'X of circular patches: a product for each difference of places, halved by symmetry, and one convolution backward."""
    differences = (2 * kernel_size - 1) ** 2
    product = 2 * images * pixels * channels**2
    return product * (differences + 1) / 2 + product * differences


def resnet8(channels: int, num_data: int, num_inducing: int) -> float:
    """A training step of ResNet-8 on images of 3 x 32 x 32 with one sample. The last, linear layer is left out."""
    total = 0.0
    for inputs, pixels in ((3, 32**2), (channels, 32**2), (channels, 16**2), (channels, 8**2)):
        layers = 1 if inputs == 3 else 2
        convolution = 2 * 9 * inputs * channels * pixels
        # forward, to the weights and to the inputs; images of the first layer's batch need no gradient
        data = (2 if inputs == 3 else 3) * num_data * convolution
        # forward and backward of the convolution and of the cross term, and the Gram matrix
        inducing = 6 * num_inducing * convolution + convolution_gram(num_inducing, inputs, pixels, 3)
        total += layers * (data + inducing)
    return total


def process(rows: int, num_inducing: int, inputs: int, outputs: int, distinct: int) -> float:
    """What a row of data asks of a Gaussian process, forward; and the covariance of the inducing inputs.

    Arguments:
        rows: Rows of data, times samples where those differ.
        num_inducing: M.
        inputs: D.
        outputs: Number of outputs.
        distinct: Different inducing inputs: 1, or S.
    """
    covariance = distinct * (num_inducing**2 * inputs + num_inducing**3 / 3)
    cross = 2 * rows * num_inducing * inputs
    # A = R^-1 K_uf, A'a, and T'A for each output
    return covariance + cross + rows * num_inducing**2 + 2 * rows * num_inducing * outputs


def dsvi(width: int, num_layers: int, num_data: int, num_inducing: int, num_samples: int) -> float:
    """A training step of a deep Gaussian process with inducing inputs in each layer; backward is twice forward."""
    total = 0.0
    for layer in range(num_layers):
        rows = num_data * (1 if layer == 0 else num_samples)
        outputs = 1 if layer == num_layers - 1 else width
        # T'A with a triangular T for each output
        total += process(rows, num_inducing, width, outputs, 1) + rows * num_inducing**2 * outputs
    return 3 * total


def global_deep_gp(width: int, num_layers: int, num_data: int, num_inducing: int, num_samples: int) -> float:
    """A training step of a deep Gaussian process with global inducing points and a full precision for each output."""
    total = 0.0
    for layer in range(num_layers):
        distinct = 1 if layer == 0 else num_samples
        is_last = layer == num_layers - 1
        outputs, rows = (1 if is_last else width), num_data * distinct
        total += process(rows, num_inducing, width, outputs, distinct)
        # L'R of two triangular matrices, half of Y'Y, and the factor of I + Y'Y
        total += distinct * outputs * (num_inducing**3 / 3 + num_inducing**3 + num_inducing**3 / 3)
        # two solves, and u = R a
        total += num_samples * outputs * 3 * num_inducing**2
        # the last layer's values are integrated out of the rows' marginals
        total += rows * num_inducing**2 if is_last else 0
    return 3 * total


def prediction(widths: list[int], num_data: int, num_inducing: int, num_samples: int) -> float:
    """Drawing functions once, with a precision for each output, and running them on the data: forward only."""
    total, distinct = 0.0, 1
    for fan_in, outputs in pairwise(widths):
        features = fan_in + 1
        total += distinct * outputs * (num_inducing * features**2 + features**3 / 3)
        total += 2 * distinct * num_inducing * features * outputs + 2 * num_samples * outputs * features**2
        total += 2 * num_samples * (num_inducing + num_data) * fan_in * outputs
        distinct = num_samples
    return total
