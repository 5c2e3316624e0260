"""The file that says what a prepared folder holds. It is written last: a folder without it is not complete."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from feedback_transformer.data.corpora import SPLITS, DataError


class Kind(NamedTuple):
    """What can be in such a folder."""

    file: str
    format: int  # that this version reads
    name: str  # in a sentence: the corpus, the pairs
    some: str  # a corpus, pairs


def read_description(folder: Path, kind: Kind) -> dict[str, Any]:
    """The description, if the folder holds something complete in a format that this version reads."""
    path = folder / kind.file
    try:
        description = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise DataError(
            f"{folder} holds no prepared {kind.name} (there is no {kind.file}); "
            f"make {kind.some} with `feedback-transformer prepare` (which there are: `list corpora`)"
        ) from None
    except NotADirectoryError:
        raise DataError(f"{folder} is a file; give the folder of a prepared corpus") from None
    except ValueError as error:
        raise DataError(f"{path} is damaged ({error}); prepare the {kind.name} again") from None
    found = description.get("format") if isinstance(description, dict) else None
    if found != kind.format:
        raise DataError(
            f"{path} has format {found!r} but this version reads format {kind.format}; prepare the {kind.name} again"
        )
    return dict(description)


def require(description: Mapping[str, Any], keys: Iterable[str], of_splits: Iterable[str]) -> None:
    """A KeyError or TypeError for what a description lacks, before it is read in the middle of something."""
    for key in keys:
        description[key]
    for split in SPLITS:
        for key in of_splits:
            description["splits"][split][key]


def there_already(out: Path, kind: Kind, wanted: Mapping[str, Any], hashes: Mapping[str, str]) -> bool:
    """Whether `out` holds exactly what is wanted, made from texts with these hashes; an error if anything else."""
    if not out.exists() or (out.is_dir() and not any(out.iterdir())):
        return False
    way_out = "choose another --out, or remove it first"
    if not (out / kind.file).is_file():
        raise DataError(f"{out} exists and holds no prepared {kind.name}; {way_out}")
    description = read_description(out, kind)
    for key, value in wanted.items():
        if description.get(key) != value:
            raise DataError(f"{out} holds {kind.some} with {key} = {description.get(key)}, not {value}; {way_out}")
    for split, digest in hashes.items():
        if description["splits"][split]["sha256"] != digest:
            raise DataError(f"{out} holds {kind.some} made from another {split} text; {way_out}")
    return True
