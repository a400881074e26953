import torch

from benchmarks import images


def test_the_plain_network_has_the_layers_of_ours():
    plain, network = images.plain_network(), images.global_network(2)
    x, _ = images.smooth_images(3)
    assert plain(x).shape == network(x)[0].shape
    kernels = [tuple(layer.weight.shape[1:]) for layer in plain.modules() if isinstance(layer, torch.nn.Conv2d)]
    assert kernels == [(3, 3, 3)] + 6 * [(images.CHANNELS, 3, 3)]
    assert len(network.layer_names) == 8


def test_both_sides_take_a_step():
    for side in (*images.training_step(2, 2), *images.pieces(4, 2)):
        side()


def test_images_are_smooth_and_standardised():
    x, y = images.smooth_images(20)
    torch.testing.assert_close(x.std(), torch.tensor(1.0))
    neighbours = torch.corrcoef(torch.stack([x[..., 1:].flatten(), x[..., :-1].flatten()]))[0, 1]
    assert neighbours > 0.7
    assert y.shape == (20,)
