"""Every test of the arithmetic starts from the same seed."""

import pytest
import torch


@pytest.fixture(autouse=True)
def seed() -> None:
    """Random tensors are the same in every run, whatever ran before."""
    torch.manual_seed(0)
