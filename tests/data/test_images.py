"""Normalisation and augmentation of images."""

import numpy as np
import pytest
import torch

from inducing.data import images


def test_normalise_by_the_training_images(small_images):
    train, test = images.load("cifar10"), images.load("cifar10", False)
    normal, normal_test = images.normalise(train, test)
    pixels = small_images["cifar10", True][0] / 255
    mean, std = pixels.mean((0, 2, 3), keepdims=True), pixels.std((0, 2, 3), keepdims=True)
    np.testing.assert_allclose(normal.x, (pixels - mean) / std, atol=1e-6)
    np.testing.assert_allclose(normal_test.x, (small_images["cifar10", False][0] / 255 - mean) / std, atol=1e-6)
    assert torch.equal(normal.y, train.y)
    assert train.x.min() >= 0, "the images that were given stay as they were"


def test_a_constant_channel_becomes_zero():
    x = torch.stack([torch.full((7, 5, 5), 0.1), torch.rand(7, 5, 5)], 1)
    (normal,) = images.normalise(images.Images(x, torch.zeros(7).long(), ("a",)))
    assert normal.x[:, 0].abs().max() < 1e-6
    torch.testing.assert_close(normal.x[:, 1].std(correction=0).item(), 1.0)


def test_statistics_of_many_images_are_those_of_all():
    x = torch.rand(2500, 1, 2, 2, dtype=torch.float64) + torch.arange(2500)[:, None, None, None]
    (normal,) = images.normalise(images.Images(x, torch.zeros(2500).long(), ("a",)))
    torch.testing.assert_close(normal.x, (x - x.mean()) / x.std(correction=0))


def test_normalise_refuses_what_has_no_statistics():
    good = images.Images(torch.rand(2, 3, 4, 4), torch.zeros(2).long(), ("a",))
    with pytest.raises(ValueError, match="at least one image"):
        images.normalise(good._replace(x=good.x[:0]))
    with pytest.raises(ValueError, match=r"images must be \(N, 3, H, W\), got \(2, 1, 4, 4\)"):
        images.normalise(good, good._replace(x=good.x[:, :1]))


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def test_half_of_the_images_are_flipped():
    x = torch.rand(4000, 3, 2, 5)
    flipped = images.random_flip(x, generator())
    mirrored = (flipped == x.flip(-1)).all((1, 2, 3))
    assert (mirrored | (flipped == x).all((1, 2, 3))).all()
    assert abs(mirrored.double().mean() - 0.5) / (0.25 / 4000) ** 0.5 < 4


@pytest.mark.parametrize("fill", [0.0, 7.0, torch.tensor([1.0, 2.0])])
def test_a_crop_is_a_window_of_the_padded_image(fill):
    """Every pixel is another number, so that each crop says where it was cut; all 81 places are equally likely."""
    image = 100 + torch.arange(2 * 32 * 32.0).reshape(2, 32, 32)
    padded = torch.as_tensor(fill).reshape(-1, 1, 1).repeat(2 // torch.as_tensor(fill).numel(), 40, 40)
    padded[:, 4:36, 4:36] = image
    windows = padded.unfold(1, 32, 1).unfold(2, 32, 1).permute(1, 2, 0, 3, 4)  # (9, 9, 2, 32, 32)
    crops = images.random_crop(image.expand(2000, 2, 32, 32), generator(), fill=fill)
    # pixel (16, 16) is never padding
    where = {int(windows[i, j, 0, 16, 16]): (i, j) for i in range(9) for j in range(9)}
    places = [where[int(crop[0, 16, 16])] for crop in crops]
    assert all(torch.equal(crop, windows[place]) for crop, place in zip(crops, places, strict=True))
    counts = np.array([places.count(place) for place in where.values()])
    expected = 2000 / 81
    assert len(counts) == 81
    assert np.abs((counts - expected) / np.sqrt(expected * (1 - 1 / 81))).max() < 4


def test_no_padding_leaves_images_alone():
    x = torch.rand(3, 1, 28, 28)
    assert torch.equal(images.random_crop(x, generator(), padding=0), x)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.uint8])
def test_the_generator_decides(dtype):
    x = (255 * torch.rand(50, 3, 32, 32)).to(dtype)
    before = x.clone()
    torch.manual_seed(1)
    first = images.augment(x, generator(3))
    state = torch.get_rng_state()
    torch.manual_seed(2)
    again = generator(3)
    assert torch.equal(images.augment(x, again), first)
    assert not torch.equal(images.augment(x, again), first)
    assert not torch.equal(images.augment(x, generator(4)), first)
    assert (first.shape, first.dtype) == (x.shape, dtype)
    assert torch.equal(x, before)
    torch.manual_seed(1)
    assert torch.equal(torch.get_rng_state(), state), "torch's own generator is not used"


def test_images_keep_their_places_and_thus_their_labels():
    y = torch.arange(1.0, 41.0)
    augmented = images.augment(y[:, None, None, None].expand(40, 3, 32, 32), generator())
    assert torch.equal(augmented.amax((1, 2, 3)), y)


def test_bad_batches_are_refused():
    with pytest.raises(ValueError, match=r"images must be \(B, C, H, W\), got \(3, 32, 32\)"):
        images.augment(torch.zeros(3, 32, 32), generator())
    with pytest.raises(ValueError, match=r"images must be \(B, C, H, W\), got \(32, 32\)"):
        images.random_crop(torch.zeros(32, 32), generator())
    with pytest.raises(ValueError, match="padding must not be negative, got -1"):
        images.random_crop(torch.zeros(1, 3, 32, 32), generator(), padding=-1)
    with pytest.raises(RuntimeError, match=r"\(3\) must match the existing size \(2\)"):
        images.random_crop(torch.zeros(1, 3, 32, 32), generator(), fill=torch.zeros(2))
