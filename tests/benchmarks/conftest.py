import pytest
import torch


@pytest.fixture(autouse=True)
def _denormals():
    """Benchmarks flush denormal numbers to zero; other tests in this process must not notice."""
    yield
    torch.set_flush_denormal(False)
