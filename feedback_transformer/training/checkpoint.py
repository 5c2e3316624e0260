"""Checkpoints: one safetensors file with the tensors, and everything else as JSON in its header.

A checkpoint is written to a temporary file, flushed to disk and renamed, so that even after a power failure it is
either the old one or the new one. Loading runs no code.
"""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from feedback_transformer.config import ConfigError

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

HEADER = "feedback-transformer"
FORMAT = 1
ANOTHER = "take another one (a run also resumes from its best.safetensors, copied to last.safetensors)"


class CheckpointError(ValueError):
    """A file that cannot be used as a checkpoint; the message says which, why, and what to do."""


def save(path: Path, tensors: Mapping[str, Tensor], meta: Mapping[str, Any]) -> None:
    """Atomically replace `path`."""
    owned = {name: tensor.detach().cpu().clone().contiguous() for name, tensor in tensors.items()}
    header = {HEADER: json.dumps({"format": FORMAT, **meta})}
    write_atomically(path, lambda temporary: save_file(owned, temporary, metadata=header))


def load(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Tensors and meta of a checkpoint."""
    if not path.is_file():
        raise CheckpointError(f"there is no checkpoint {path}; give the folder that `train` made, or a file in it")
    try:
        with safe_open(path, framework="pt") as file:
            header = (file.metadata() or {}).get(HEADER)
            if header is None:
                raise CheckpointError(f"{path} is a safetensors file, but not a checkpoint of feedback-transformer")
            meta = json.loads(header)
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (not a dict)
    except (SafetensorError, json.JSONDecodeError, OSError) as error:
        raise CheckpointError(f"{path} is truncated or not a checkpoint ({error}); {ANOTHER}") from None
    if not isinstance(meta, dict):
        raise CheckpointError(f"{path} is damaged: its header is not a checkpoint's; {ANOTHER}")
    if meta.get("format") != FORMAT:
        raise CheckpointError(f"{path} has format {meta.get('format')!r}; this version reads format {FORMAT}")
    return tensors, meta


def load_whole(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """The same, of a checkpoint from which a run can go on."""
    tensors, meta = load(path)
    if lacking := [part for part in ("processes", "stream", "progress") if part not in meta]:
        raise CheckpointError(f"{path} holds weights alone (no {lacking[0]}), so no run goes on from it; {ANOTHER}")
    return tensors, meta


def write_atomically(path: Path, write: Any) -> None:
    """`write(temporary)` makes the file; it replaces `path` only when it is complete and on disk."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        write(temporary)
        with open(temporary, "rb") as file:
            os.fsync(file.fileno())
        temporary.chmod(0o666 & ~_umask())
        os.replace(temporary, path)
    except (OSError, SafetensorError) as error:
        raise CheckpointError(f"cannot write {path} ({error}); what was there before is kept") from None
    finally:
        temporary.unlink(missing_ok=True)


def _umask() -> int:
    """The process's umask, which can only be read by setting it."""
    mask = os.umask(0)
    os.umask(mask)
    return mask


def write_json(path: Path, value: Any) -> None:
    """Write JSON atomically, in a form that is readable and can be compared line by line."""
    write_atomically(path, lambda temporary: temporary.write_text(json.dumps(value, indent=1) + "\n", encoding="utf-8"))


def make_folder(folder: Path) -> None:
    """Make a folder to write to, and those above it."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise _cannot_write(folder, error) from None
    if not os.access(folder, os.W_OK):
        raise _cannot_write(folder, PermissionError(errno.EACCES, os.strerror(errno.EACCES)))


def _cannot_write(folder: Path, error: OSError) -> ConfigError:
    return ConfigError(f"cannot write to {folder} ({error.strerror}); choose another folder")


def lock_folder(folder: Path) -> IO[str]:
    """Make the folder and lock it until the file is closed: two trainings would mix their output."""
    make_folder(folder)
    try:
        file = open(folder / ".lock", "w")  # noqa: SIM115 (held as long as the run)
    except OSError as error:
        raise _cannot_write(folder, error) from None
    try:
        if fcntl is not None:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        file.close()
        raise ConfigError(f"another process is training in {folder}; wait for it, or choose another --out") from None
    except OSError:
        pass  # a file system that has no locks
    for half_written in folder.glob(".*.tmp"):  # left by a process that was killed
        half_written.unlink(missing_ok=True)
    return file


def with_prefix(prefix: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {f"{prefix}.{name}": tensor for name, tensor in tensors.items()}


def without_prefix(prefix: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The tensors whose names have this prefix, without it."""
    start = f"{prefix}."
    return {name.removeprefix(start): tensor for name, tensor in tensors.items() if name.startswith(start)}


def optimizer_tensors(optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    """Adam's moments and step counts as a flat dictionary: `3.exp_avg` belongs to parameter 3."""
    state = optimizer.state_dict()["state"]
    return {f"{index}.{name}": torch.as_tensor(value) for index, own in state.items() for name, value in own.items()}


def load_optimizer(optimizer: torch.optim.Optimizer, tensors: Mapping[str, Tensor]) -> None:
    """The reverse of `optimizer_tensors`."""
    state: dict[int, dict[str, Tensor]] = {}
    for name, tensor in tensors.items():
        index, _, key = name.partition(".")
        state.setdefault(int(index), {})[key] = tensor
    optimizer.load_state_dict({"state": state, "param_groups": optimizer.state_dict()["param_groups"]})


def random_tensors(device: torch.device) -> dict[str, Tensor]:
    """The state of torch's random numbers, on the CPU and on the device."""
    states = {"cpu": torch.get_rng_state()}
    if device.type == "cuda":
        states["cuda"] = torch.cuda.get_rng_state(device)
    elif device.type == "mps":
        states["mps"] = torch.mps.get_rng_state()
    return states


def load_random(tensors: Mapping[str, Tensor], device: torch.device) -> None:
    torch.set_rng_state(tensors["cpu"])
    if device.type == "cuda" and "cuda" in tensors:
        torch.cuda.set_rng_state(tensors["cuda"], device)
    elif device.type == "mps" and "mps" in tensors:
        torch.mps.set_rng_state(tensors["mps"])
