"""The record of a run: one small JSON file with what was run, where, at what cost, and with what result."""

from __future__ import annotations

import json
import os
import platform
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy
import torch

from feedback_transformer.config import ConfigError


def environment(device: torch.device) -> dict[str, Any]:
    """Hardware and versions, to put numbers into context."""
    import feedback_transformer

    return {
        "feedback_transformer": feedback_transformer.__version__,
        "commit": commit(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "numpy": numpy.__version__,
        "system": f"{platform.system()} {platform.machine()}",
        "processor": processor(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "device": torch.cuda.get_device_name(device) if device.type == "cuda" else str(device),
    }


def read_record(path: Path) -> dict[str, Any]:
    """A record, as JSON holds it."""
    try:
        record: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        if not isinstance(record, dict):
            raise ValueError("it holds no object")
        return record
    except FileNotFoundError:
        raise ConfigError(f"there is no record {path}") from None
    except (OSError, ValueError) as error:
        raise ConfigError(f"{path} is not a record ({error}); fetch it again, or remove it") from None


def signature_of(task: Any) -> dict[str, str]:
    """How a task's scores are computed, where there is more than one way (BLEU, ROUGE)."""
    return {"signature": task.signature()} if hasattr(task, "signature") else {}


def bounds_of(task: Any) -> dict[str, dict[str, float]]:
    """What a task's test can be scored without learning it, where the task knows that (translation)."""
    return {"bounds": task.bounds()} if hasattr(task, "bounds") else {}


def commit() -> str | None:
    """The commit of this code, with `+` if files have changed since; None outside a checkout of it."""
    here = Path(__file__).resolve().parent

    def git(*words: str) -> str:
        return subprocess.run(["git", *words], cwd=here, capture_output=True, text=True, check=True, timeout=10).stdout

    try:
        git("ls-files", "--error-unmatch", Path(__file__).name)  # in a project's own checkout it may be installed
        changed = git("status", "--porcelain", "--untracked-files=no", "--", str(here.parent))
        return git("rev-parse", "HEAD").strip() + ("+" if changed.strip() else "")
    except (OSError, subprocess.SubprocessError):
        return None


def processor() -> str:
    """The CPU's name as the system reports it."""
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


def command_line() -> str:
    """The command that started this process, so that it can be repeated; without where it wrote to."""
    words = [word for word in sys.argv[1:] if not word.startswith("--out=")]
    if "--out" in words:
        at = words.index("--out")
        words = words[:at] + words[at + 2 :]
    return shlex.join(["feedback-transformer", *map(without_place, words)])


def without_place(text: str) -> str:
    """A word of a command with an absolute path cut to its last part: records hold no paths of a machine.

    >>> without_place("data=/home/ada/corpora/ptb-char"), without_place("steps=20")
    ('data=ptb-char', 'steps=20')
    """
    name, equals, value = text.rpartition("=")
    return name + equals + (Path(value).name if Path(value).is_absolute() else value)


def open_tensorboard(folder: Path, step: int) -> Any:
    """A TensorBoard writer, or None where TensorBoard is not installed."""
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        return None
    return SummaryWriter(str(folder), purge_step=step + 1)
