"""Records as a run would leave them, made up."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from feedback_transformer.training.run import RunConfig


def write_record(results: Path, key: str, run: RunConfig, test: dict[str, float], **more: Any) -> None:
    """A finished record with these scores; the first of them is the task's metric."""
    metric, value = next(iter(test.items()))
    record = {
        "run": run.to_dict(),
        "finished": True,
        "parameters": 10,
        "tokens": 3000,
        "cpu_seconds": 60.0,
        "environment": {"processor": "a processor", "commit": "0"},
        "best": {"step": 1, metric: value},
        "curve": [{"tokens": 1000, **test}],
        "test": test,
        **more,
    }
    path = results / f"{key}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(record))
