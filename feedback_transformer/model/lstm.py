"""The recurrent baseline: PyTorch's LSTM behind the contract of a core."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from feedback_transformer.config import ModelConfig


@dataclass(frozen=True)
class LSTMState:
    """Hidden and cell vectors of all layers, [B, L, D] each."""

    hidden: Tensor
    cell: Tensor

    def detach(self) -> LSTMState:
        """Cut the graph here."""
        return self._map(Tensor.detach)

    def reset(self, rows: Tensor) -> LSTMState:
        """Rows where `rows` [B] is true begin a new stream."""
        return self._map(lambda x: x.masked_fill(rows.view(-1, 1, 1), 0))

    def reorder(self, index: Tensor) -> LSTMState:
        """Row i becomes what row index[i] was."""
        return self._map(lambda x: x.index_select(0, index))

    def to(self, device: torch.device | str) -> LSTMState:
        return self._map(lambda x: x.to(device))

    def tensors(self) -> dict[str, Tensor]:
        """What to save; `from_tensors` gives the state back."""
        return {"hidden": self.hidden, "cell": self.cell}

    @classmethod
    def from_tensors(cls, tensors: dict[str, Tensor]) -> LSTMState:
        return cls(tensors["hidden"], tensors["cell"])

    def _map(self, change: Callable[[Tensor], Tensor]) -> LSTMState:
        return LSTMState(change(self.hidden), change(self.cell))


class LSTM(nn.Module):
    """A core: `num_layers` LSTM layers of width `model_dim`; attention settings mean nothing to it."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.config = config
        between_layers = config.dropout if config.num_layers > 1 else 0.0
        self.lstm = nn.LSTM(
            config.model_dim, config.model_dim, config.num_layers, batch_first=True, dropout=between_layers
        )

    def step(self, x: Tensor, state: LSTMState | None = None) -> tuple[Tensor, LSTMState]:
        """One step: x [B, D] -> [B, D], the block of one."""
        y, state = self.forward(x[:, None], state)
        return y.squeeze(1), state

    def forward(
        self, x: Tensor, state: LSTMState | None = None, reset: Tensor | None = None
    ) -> tuple[Tensor, LSTMState]:
        """A block: x [B, T, D] -> [B, T, D]. Rows where reset [B, T] is true begin anew before that step."""
        if reset is None:
            return self._run(x, state)
        outputs = []
        for t in range(x.shape[1]):
            y, state = self._run(x[:, t : t + 1], None if state is None else state.reset(reset[:, t]))
            outputs.append(y)
        assert state is not None, "a block has at least one step"
        return torch.cat(outputs, dim=1), state

    def _run(self, x: Tensor, state: LSTMState | None) -> tuple[Tensor, LSTMState]:
        given = None
        if state is not None:
            given = (state.hidden.transpose(0, 1).contiguous(), state.cell.transpose(0, 1).contiguous())
        y, (hidden, cell) = self.lstm(x, given)
        return y, LSTMState(hidden.transpose(0, 1).to(x.dtype), cell.transpose(0, 1).to(x.dtype))
