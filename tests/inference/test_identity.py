from functools import partial

import torch

from inducing.data import images
from inducing.inference.identity import augment_identity, checksums, differences


def test_augmentations_are_told_apart_by_what_they_fix():
    black = torch.tensor([0.0, -1.0])
    different = [
        None,
        images.augment,
        partial(images.augment, padding=2),
        partial(images.augment, fill=black),
        partial(images.augment, fill=black + 1e-6),
        partial(images.random_crop, fill=black),
    ]
    assert len({augment_identity(each) for each in different}) == len(different)
    assert augment_identity(partial(images.augment, fill=black.clone())) == augment_identity(different[3])
    assert augment_identity(partial(images.augment, padding=2, fill=0.0)) == "augment(fill=0.0, padding=2)"


def test_differences_are_named_with_both_values():
    ours = {"recipe": {"batch_size": 3, "schedule": "cosine"}, "seed": 0, "data": [1], "network": "long"}
    theirs = {"recipe": {"batch_size": 4, "schedule": "cosine"}, "seed": 1, "data": [2], "network": "other"}
    assert list(differences(theirs, ours)) == ["batch_size (4 and not 3)", "seed (1 and not 0)", "data", "network"]
    assert list(differences(ours, ours)) == []


def test_checksums_of_all_dtypes():
    tensors = [torch.ones(3, dtype=dtype) for dtype in (torch.bfloat16, torch.float64, torch.int64, torch.bool)]
    assert len(set(checksums(tensors))) == 4
    assert checksums(tensors) == checksums([tensor.clone() for tensor in tensors])
