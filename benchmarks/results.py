"""Results as they come, a line of JSON each: a benchmark that was stopped goes on where it was."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

Row = dict[str, Any]


class Results:
    """The rows of a file. `get` computes what is not in it yet."""

    def __init__(self, path: Path) -> None:
        self.path = path
        path.parent.mkdir(parents=True, exist_ok=True)
        self.rows: list[Row] = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    def find(self, **key: Any) -> list[Row]:
        return [row for row in self.rows if all(row[name] == value for name, value in key.items())]

    def get(self, compute: Callable[[], Row], **key: Any) -> Row:
        """The row of this key, computed and written down if there is none."""
        rows = self.find(**key)
        if not rows:
            rows = [key | compute()]
            self.rows += rows
            with self.path.open("a") as out:
                out.write(json.dumps(rows[0]) + "\n")
            print(json.dumps(rows[0]), flush=True)
        return rows[0]
