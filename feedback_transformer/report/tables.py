"""Markdown tables made from records, and the places in a document that they fill.

A place is marked in the document, so that people write the text around it but never the numbers:

    <!-- table:demo -->
    ...
    <!-- end -->
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

NUMBER = re.compile(r"[-+≥≤]? ?[\d(]|-$|$|not run$")  # also where one is missing


def markdown_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table; words begin at the left of their column, numbers end at its right.

    >>> print(markdown_table(["model", "score", "verdict"], [["LSTM", "1.5 ± 0.1", "holds"]]))
    | model | score | verdict |
    |---|---:|---|
    | LSTM | 1.5 ± 0.1 | holds |
    """
    lines = ["| " + " | ".join(row) + " |" for row in [header, *rows]]
    columns = zip(*rows, strict=True) if rows else [[""]] * len(header)
    marks = ["---:" if place and all(map(NUMBER.match, column)) else "---" for place, column in enumerate(columns)]
    return "\n".join([lines[0], f"|{'|'.join(marks)}|", *lines[1:]])


def places(document: str) -> list[str]:
    """The names of its marked places.

    >>> places("<!-- table:goals -->\\n<!-- end -->")
    ['goals']
    """
    return re.findall(r"<!-- table:([\w-]+) -->\n", document)


def fill(document: str, tables: Mapping[str, str]) -> str:
    """The document with its marked places filled by the tables of the same name."""
    for name, table in tables.items():
        place = re.compile(rf"(<!-- table:{re.escape(name)} -->\n).*?(<!-- end -->)", flags=re.DOTALL)
        document = place.sub(lambda match, text=table: f"{match[1]}{text}\n{match[2]}", document)  # type: ignore[misc]
    return document
