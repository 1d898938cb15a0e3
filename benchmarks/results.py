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
        found = self.find(**key)
        if not found:
            found = [key | compute()]
            self.rows += found
            with self.path.open("a") as out:
                out.write(json.dumps(found[0]) + "\n")
            print(json.dumps(found[0]), flush=True)
        return found[0]
