from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from feedback_transformer.kernels import engines


@pytest.fixture(params=["fused", "native"])
def engine(request: pytest.FixtureRequest) -> str:
    row = next(row for row in engines() if row["name"] == request.param)
    if row["available"] != "yes":
        pytest.skip(f"{request.param}: {row['available']}")
    return str(request.param)


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """The cores here are tiny: torch's threads would spend their time waiting for each other."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)
