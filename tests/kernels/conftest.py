from __future__ import annotations

import pytest

from feedback_transformer.kernels import engines


@pytest.fixture(params=["fused", "native"])
def engine(request: pytest.FixtureRequest) -> str:
    row = next(row for row in engines() if row["name"] == request.param)
    if row["available"] != "yes":
        pytest.skip(f"{request.param}: {row['available']}")
    return str(request.param)
