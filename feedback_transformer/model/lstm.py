"""The recurrent baseline: PyTorch's LSTM behind the contract of a core."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from feedback_transformer.config import ModelConfig
from feedback_transformer.model.contract import check_block, check_kind, check_reset, check_rows

SHUT = -1e4  # a gate's input: exactly zero after the sigmoid, in every dtype


@dataclass(frozen=True, eq=False)
class LSTMState:
    """Hidden and cell vectors of all layers, [B, L, D] each."""

    hidden: Tensor
    cell: Tensor

    def detach(self) -> LSTMState:
        """Cut the graph here."""
        return self._map(Tensor.detach)

    def reset(self, rows: Tensor) -> LSTMState:
        """Rows where `rows` [B] is true begin a new stream."""
        check_reset(rows, len(self.hidden))
        return self._map(lambda x: x.masked_fill(rows.view(-1, 1, 1), 0))

    def reorder(self, index: Tensor) -> LSTMState:
        """Row i becomes what row index[i] was."""
        return self._map(lambda x: x.index_select(0, index))

    def to(self, device: torch.device | str) -> LSTMState:
        return self._map(lambda x: x.to(torch.device(device)))

    def tensors(self) -> dict[str, Tensor]:
        """What to save; `from_tensors` restores the state."""
        return {"hidden": self.hidden, "cell": self.cell}

    @classmethod
    def from_tensors(cls, tensors: dict[str, Tensor]) -> LSTMState:
        return cls(tensors["hidden"], tensors["cell"])

    def _map(self, change: Callable[[Tensor], Tensor]) -> LSTMState:
        return LSTMState(change(self.hidden), change(self.cell))


class LSTM(nn.Module):
    """A core: `num_layers` LSTM layers of width `model_dim`; it ignores the attention settings."""

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
        """A block: x [B, T, D] -> [B, T, D]. Where reset [B, T] is true, the row's state is zero before that step."""
        check_block(x, self.config.model_dim, reset)
        if state is not None:
            check_kind(state, LSTMState)
            check_rows(len(state.hidden), x)
            state = state._map(lambda own: own.to(x.dtype))
        if reset is None or not reset.any():
            return self._run(x, state)
        if state is None:
            zeros = x.new_zeros(len(x), self.config.num_layers, x.shape[-1])
            state = LSTMState(zeros, zeros)
        anew = reset.any(dim=1)
        index = torch.cat([torch.nonzero(~anew), torch.nonzero(anew)]).squeeze(1)
        rows, count = state.reorder(index), int((~anew).sum())
        parts = []
        if count:
            parts.append(self._run(x[index[:count]], LSTMState(rows.hidden[:count], rows.cell[:count])))
        rest = LSTMState(rows.hidden[count:], rows.cell[count:])
        parts.append(self._run_anew(x[index[count:]], rest, reset[index[count:]]))
        back = torch.argsort(index)
        y, hidden, cell = (
            torch.cat(some)[back] for some in zip(*((y, s.hidden, s.cell) for y, s in parts), strict=True)
        )
        return y, LSTMState(hidden, cell)

    def _run_anew(self, x: Tensor, state: LSTMState, reset: Tensor) -> tuple[Tensor, LSTMState]:
        """A block with resets in every row, in one call.

        At each reset a row gets an extra blank step, at which the input and forget gates are held shut, so that cell
        and hidden vectors become zero: c = 0 c + 0 g and h = o tanh(0). Rows with fewer resets get as many blanks, the
        spare ones at their first reset.
        """
        before = reset.cumsum(dim=1)
        blanks = int(before[:, -1].max())
        place = torch.arange(x.shape[1], device=x.device) + before + (before > 0) * (blanks - before[:, -1:])
        place = place.unsqueeze(-1)
        blank = x.new_ones(len(x), x.shape[1] + blanks, 1).scatter(1, place, 0.0)
        hidden, cell, y = [], [], x
        for layer in range(self.config.num_layers):
            y = y.new_zeros(*blank.shape[:2], y.shape[-1]).scatter(1, place.expand_as(y), y)
            given = (state.hidden[:, layer].unsqueeze(0).contiguous(), state.cell[:, layer].unsqueeze(0).contiguous())
            y = torch.cat([y.to(x.dtype), blank], dim=-1)
            y, h, c = torch.lstm(y, given, self._weights(layer), True, 1, 0.0, self.training, False, True)
            y = y.gather(1, place.expand(-1, -1, y.shape[-1]))
            hidden.append(h.squeeze(0))
            cell.append(c.squeeze(0))
            if layer < self.config.num_layers - 1:
                y = F.dropout(y, self.lstm.dropout, self.training)
        return y, LSTMState(torch.stack(hidden, dim=1).to(x.dtype), torch.stack(cell, dim=1).to(x.dtype))

    def _weights(self, layer: int) -> list[Tensor]:
        """The layer's parameters, with an extra input that shuts the gates i and f (of i, f, g, o)."""
        from_input, *others = (getattr(self.lstm, name) for name in self.lstm._all_weights[layer])
        shut = from_input.new_zeros(4, self.config.model_dim)
        shut[:2] = SHUT
        return [torch.cat([from_input, shut.view(-1, 1)], dim=1), *others]

    def _run(self, x: Tensor, state: LSTMState | None) -> tuple[Tensor, LSTMState]:
        given = None
        if state is not None:
            given = (state.hidden.transpose(0, 1).contiguous(), state.cell.transpose(0, 1).contiguous())
        y, (hidden, cell) = self.lstm(x, given)
        return y, LSTMState(hidden.transpose(0, 1).to(x.dtype), cell.transpose(0, 1).to(x.dtype))
