"""Training with several processes: each computes some of the lanes, and all make the same update.

    torchrun --nproc-per-node 2 -m feedback_transformer train random-walk

The global batch is as configured, whatever the number of processes; gradients are of the mean over all its labels, so
the loss is the same as with one process. Only the first process writes files.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from feedback_transformer.config import ConfigError


@dataclass(frozen=True)
class Team:
    """The processes of a training, and which of them this is."""

    rank: int = 0
    size: int = 1

    @classmethod
    def join(cls, device: torch.device, batch_size: int) -> Team:
        """The team that torchrun has started, or a team of one; `batch_size` is 0 where batches are sized by tokens."""
        size = int(os.environ.get("WORLD_SIZE", "1"))
        if size == 1:
            return cls()
        if batch_size % size:
            raise ConfigError(
                f"TrainConfig.batch_size = {batch_size} cannot be shared by {size} processes evenly; choose a multiple "
                f"of {size}"
            )
        if device.type == "cuda":
            torch.cuda.set_device(device)  # used when gathering
        if not dist.is_initialized():
            dist.init_process_group("nccl" if device.type == "cuda" else "gloo")
        return cls(dist.get_rank(), size)

    def leave(self) -> None:
        """End the team's work: threads that still listen to the others may end a process that ends by itself badly."""
        if self.size > 1:
            dist.destroy_process_group()

    @property
    def leads(self) -> bool:
        """Whether this process writes the files and reports progress."""
        return self.rank == 0

    def share(self, rows: Tensor, parts: int = 1) -> tuple[Tensor, ...]:
        """This process's share of a global batch, itself in `parts` parts."""
        if len(rows) < self.size * parts:
            raise ConfigError(
                f"a batch of {len(rows)} rows is too small for {parts} parts on {self.size} processes; raise "
                "batch_tokens, or use fewer processes"
            )
        return rows.tensor_split(self.size)[self.rank].tensor_split(parts)

    def wrap(self, module: nn.Module, some_unused: bool = False) -> nn.Module:
        """The module with gradients averaged over the team; `some_unused` if layers may be left out at random."""
        if self.size == 1:
            return module
        return nn.parallel.DistributedDataParallel(module, find_unused_parameters=some_unused)

    def total(self, device: torch.device, *numbers: float) -> list[float]:
        """The sums over all processes."""
        if self.size == 1:
            return list(numbers)
        sums = torch.tensor(numbers, dtype=torch.float64, device=device)
        dist.all_reduce(sums)
        return sums.tolist()

    def told(self, scores: dict[str, float]) -> dict[str, float]:
        """The leading process's scores, on all processes."""
        if self.size == 1:
            return scores
        box = [scores]
        dist.broadcast_object_list(box)
        return box[0]

    def gather(self, own: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """`RANK.name` -> tensor of every process, on the leading one; nothing on the others."""
        if self.size == 1:
            return {f"0.{name}": tensor for name, tensor in own.items()}
        parts: list[Any] | None = [None] * self.size if self.leads else None
        dist.gather_object({name: tensor.cpu() for name, tensor in own.items()}, parts)
        if parts is None:
            return {}
        return {f"{rank}.{name}": tensor for rank, part in enumerate(parts) for name, tensor in part.items()}


def local_device(name: str) -> str:
    """The device, where `cuda` means this process's own GPU if torchrun has started several processes."""
    return f"cuda:{os.environ['LOCAL_RANK']}" if name == "cuda" and "LOCAL_RANK" in os.environ else name


def follows() -> bool:
    """Whether torchrun started this process and it is not the first, so that it prints nothing."""
    return os.environ.get("RANK", "0") != "0"
