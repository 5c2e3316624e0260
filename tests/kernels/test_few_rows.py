"""The output layer of a step: the native product for a few rows is torch's, for every size."""

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from feedback_transformer.kernels import few_rows
from feedback_transformer.kernels.native_build import native_available
from feedback_transformer.model.embedding import AdaptiveHead, Clusters, PlainHead


@pytest.fixture(autouse=True)
def small_weights_are_large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(few_rows, "LARGE", 1)
    monkeypatch.setattr(few_rows, "A_THREADS_SHARE", 8)


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Grows by one with every product that the library computes."""
    if reason := native_available():
        pytest.skip(reason)
    calls: list[int] = []
    library = few_rows.library

    def counting() -> object:
        calls.append(1)
        return library()

    monkeypatch.setattr(few_rows, "library", counting)
    return calls


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("depth", [1, 7, 16, 37])
@pytest.mark.parametrize("columns", [1, 3, 4, 30])
def test_every_size_is_torchs(
    columns: int, depth: int, threads: int, dtype: torch.dtype, counted: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch, "get_num_threads", lambda: threads)
    weight, bias = torch.randn(columns, depth, dtype=dtype), torch.randn(columns, dtype=dtype)
    with torch.no_grad():
        for rows in (1, 2, 3, 4, 8):
            x = torch.randn(rows, depth, dtype=dtype)
            for b in (bias, None):
                torch.testing.assert_close(few_rows.linear(x, weight, b), F.linear(x, weight, b))
    assert len(counted) == 10


def test_a_row_does_not_depend_on_its_neighbours(counted: list[int]) -> None:
    weight, bias, x = torch.randn(21, 40), torch.randn(21), torch.randn(9, 40)
    with torch.no_grad():
        together = few_rows.linear(x, weight, bias)
        for row in range(9):
            assert few_rows.linear(x[row : row + 1], weight, bias).equal(together[row : row + 1])


def test_sizes_that_do_not_fit_are_torchs_errors(counted: list[int]) -> None:
    weight = torch.randn(30, 16)
    with torch.no_grad():
        for width in (15, 17):
            with pytest.raises(RuntimeError, match="shapes cannot be multiplied"):
                few_rows.linear(torch.randn(2, width), weight)
        one, x = torch.randn(1), torch.randn(2, 16)
        torch.testing.assert_close(few_rows.linear(x, weight, one), F.linear(x, weight, one))
    assert not counted


def test_not_a_number_stays_one(counted: list[int]) -> None:
    weight = torch.randn(6, 20)
    weight[4, 3] = float("nan")
    with torch.no_grad():
        assert few_rows.linear(torch.randn(2, 20), weight).isnan().nonzero()[:, 1].tolist() == [4, 4]


@pytest.mark.parametrize(
    "x",
    [torch.randn(2, 3, 5), torch.randn(few_rows.MOST_ROWS + 1, 5), torch.randn(0, 5), torch.randn(2, 5).bfloat16()],
    ids=["blocks", "many", "none", "bfloat16"],
)
def test_what_it_does_not_cover_is_left_to_torch(x: Tensor, counted: list[int]) -> None:
    weight = torch.randn(7, 5, dtype=x.dtype)
    with torch.no_grad():
        torch.testing.assert_close(few_rows.linear(x, weight), F.linear(x, weight))
    assert not counted


def test_gradients_are_torchs(counted: list[int]) -> None:
    weight = torch.randn(7, 5, requires_grad=True)
    few_rows.linear(torch.randn(2, 5), weight).sum().backward()
    assert weight.grad is not None
    assert not counted


@pytest.mark.parametrize("head", [PlainHead(16, 31), AdaptiveHead(Clusters(31, 16, (7, 19), 1.0), 16)])
def test_a_step_has_the_logits_of_a_block(head: nn.Module, device: torch.device) -> None:
    head, y = head.to(device), torch.randn(5, 6, 16, device=device)
    with torch.no_grad():
        block = head(y)
        for t in range(6):
            torch.testing.assert_close(head(y[:, t]), block[:, t])
