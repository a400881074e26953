"""Image datasets as tensors, with normalisation and random flips and crops."""

from __future__ import annotations

from typing import NamedTuple

import torch
from jaxtyping import Float, Int64, Shaped
from torch import Generator, Tensor

from inducing.arrays import as_tensor
from inducing.data.image_files import SETS, read

Batch = Shaped[Tensor, "B C H W"]
# one number, or one for each channel
Fill = float | Float[Tensor, " C"]


class Images(NamedTuple):
    """Images with labels.

    Arguments:
        x: Images with values from 0 to 1 (`load`) or standardised values (`normalise`).
        y: Labels, starting at 0.
        classes: Names of the labels.
    """

    x: Float[Tensor, "N C H W"]
    y: Int64[Tensor, " N"]
    classes: tuple[str, ...]


def load(name: str, train: bool = True, dtype: torch.dtype = torch.float32) -> Images:
    """Load a dataset from the folder in INDUCING_DATA, or download it.

    Arguments:
        name: One of "mnist", "fashion-mnist", "notmnist", "cifar10", "svhn".
        train: Whether to load the training images (True) or the test images (False).
        dtype: Floating-point dtype of the images, whose values are from 0 to 1.
    """
    pixels, labels = read(name, train)
    return Images(as_tensor(pixels).to(dtype).div_(255), as_tensor(labels).long(), tuple(SETS[name].classes))


def normalise(train: Images, *others: Images) -> tuple[Images, ...]:
    """Standardise each channel to zero mean and unit standard deviation over all pixels of the training images.

    The paper's 500 images of MNIST are standardised by all training images: normalise first, then select the first 500.

    Arguments:
        train: Training images, which determine the mean and the standard deviation.
        others: Other images, e.g. for testing, that are standardised in the same way.

    Example:
        >>> import inducing, torch
        >>> x, y = torch.rand(100, 3, 8, 8), torch.zeros(100).long()
        >>> images = inducing.data.images.Images(x, y, ("noise",))
        >>> (train,) = inducing.data.images.normalise(images)
        >>> train.x.std((0, 2, 3)).round(decimals=1)
        tensor([1., 1., 1.])
    """
    if train.x.ndim != 4 or train.x.numel() == 0:
        raise ValueError(f"training images must be (N, C, H, W) with at least one image, got {tuple(train.x.shape)}")
    for other in others:
        if other.x.ndim != 4 or other.x.shape[1] != train.x.shape[1]:
            raise ValueError(f"images must be (N, {train.x.shape[1]}, H, W), got {tuple(other.x.shape)}")
    # in blocks, since all of CIFAR-10 in float64 would take more than a gigabyte
    blocks = train.x.split(1000)
    pixels = train.x.numel() / train.x.shape[1]
    mean = sum((block.double().sum((0, 2, 3), keepdim=True) for block in blocks), torch.zeros(())) / pixels
    squares = sum((((block - mean) ** 2).sum((0, 2, 3), keepdim=True) for block in blocks), torch.zeros(()))
    std = (squares / pixels).sqrt()
    # rounding may give a constant channel a tiny standard deviation; it must become zero
    std = torch.where(std <= 100 * torch.finfo(train.x.dtype).eps * mean.abs(), 1.0, std)
    return tuple(
        images._replace(x=images.x.sub(mean.to(images.x)).div_(std.to(images.x))) for images in (train, *others)
    )


def random_flip(x: Batch, generator: Generator) -> Batch:
    """Flip each image horizontally with probability 1/2."""
    _check_batch(x)
    flipped = torch.rand(len(x), generator=generator, device=generator.device).to(x.device) < 0.5
    return torch.where(flipped[:, None, None, None], x.flip(-1), x)


def random_crop(x: Batch, generator: Generator, padding: int = 4, fill: Fill = 0.0) -> Batch:
    """Pad each image on all sides and crop a window of its original size at a uniformly random position.

    Arguments:
        x: A batch of images.
        generator: Source of randomness.
        padding: Number of pixels on each side, 4 in the paper.
        fill: Value of the padding, or one value per channel. Black is 0 before `normalise`, and
            ``x.amin((0, 2, 3))`` of the training images after it.
    """
    _check_batch(x)
    if padding < 0:
        raise ValueError(f"padding must not be negative, got {padding}")
    count, channels, height, width = x.shape
    border = as_tensor(fill, x.dtype, x.device).reshape(-1, 1, 1)
    padded = border.expand(count, channels, height + 2 * padding, width + 2 * padding).clone()
    padded[:, :, padding : padding + height, padding : padding + width] = x
    # every window of the original size, as a view (B, C, 2 padding + 1, 2 padding + 1, H, W)
    windows = padded.unfold(2, height, 1).unfold(3, width, 1)
    rows, columns = torch.randint(2 * padding + 1, (2, count), generator=generator, device=generator.device).to(
        x.device
    )
    return windows[torch.arange(count, device=x.device), :, rows, columns]


def augment(x: Batch, generator: Generator, padding: int = 4, fill: Fill = 0.0) -> Batch:
    """Flip and crop each image of a batch at random, as the paper does for its ResNet-18.

    The same generator state gives the same images.
    """
    return random_crop(random_flip(x, generator), generator, padding, fill)


def _check_batch(x: Tensor) -> None:
    if x.ndim != 4:
        raise ValueError(f"images must be (B, C, H, W), got {tuple(x.shape)}. For one image use x[None].")
