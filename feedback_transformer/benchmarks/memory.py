"""Peak extra memory of a training step: how much a fresh process grows by.

python -m feedback_transformer.benchmarks.memory '[contender, shape, dropout, shared_kv, threads]'   prints megabytes
"""

from __future__ import annotations

import dataclasses
import json
import os
import resource
import subprocess
import sys
from pathlib import Path

import torch

from feedback_transformer.benchmarks.contenders import contenders
from feedback_transformer.benchmarks.shapes import Shape


def peak_megabytes(contender: str, shape: Shape, dropout: float, shared_kv: bool, threads: int) -> float:
    """Measured in a fresh process."""
    request = json.dumps([contender, dataclasses.asdict(shape), dropout, shared_kv, threads])
    root = str(Path(__file__).parents[2])
    path = os.pathsep.join([root, *filter(None, [os.environ.get("PYTHONPATH")])])
    done = subprocess.run(
        [sys.executable, "-m", "feedback_transformer.benchmarks.memory", request],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": path},
        check=False,
    )
    if done.returncode:
        raise RuntimeError(f"measuring the memory of {contender} failed: {done.stderr.strip()[-500:]}")
    return float(done.stdout.strip().splitlines()[-1])


def _measure(request: str) -> float:
    name, given, dropout, shared_kv, threads = json.loads(request)
    torch.set_num_threads(threads)
    shape = Shape(**given)
    contender = next(one for one in contenders() if one.name == name)
    # Libraries that load and engines that build at the first call do not count.
    contender.train(dataclasses.replace(shape, batch=1, steps=2), dropout, shared_kv)()
    run = contender.train(shape, dropout, shared_kv)
    before = _forget_peak()
    run()
    return (_peak() - before) / 1024


def _forget_peak() -> int:
    """Reset the peak where the system allows it; returns the memory in use, in kB."""
    try:
        Path("/proc/self/clear_refs").write_text("5")
    except OSError:
        return _peak()  # the peak so far: right as long as the step exceeds it
    return _status("VmRSS")


def _peak() -> int:
    try:
        return _status("VmHWM")
    except OSError:
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return peak // 1024 if sys.platform == "darwin" else peak


def _status(field: str) -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(field))


if __name__ == "__main__":
    print(_measure(sys.argv[1]))
