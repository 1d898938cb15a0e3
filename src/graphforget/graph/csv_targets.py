"""The targets in nodes.csv: which columns hold them, and what stands in them."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from graphforget.errors import InputError
from graphforget.graph.targets import UNLABELLED, TargetKind

NEEDED = "id,label,<attributes...> is needed"
_LABEL, _TARGET = "label:", "target:"


@dataclass
class CsvTargets:
    """The targets of the nodes as they are read.

    A column `label` holds classes: any words or numbers. Without it columns `label:NAME` hold labels, 0 or 1, and
    columns `target` or `target:NAME` hold values. A node without a target has empty cells.
    """

    kind: TargetKind
    columns: tuple[str, ...]  # as in the header
    rows: list[Any] = field(default_factory=list)  # a text, or a list of numbers; empty or UNLABELLED or NaN for none

    @classmethod
    def of_header(cls, header: Sequence[str]) -> CsvTargets:
        """Raises `InputError`, without the line, if the header names no target or targets of two kinds."""
        if "label" in header:
            return cls("classes", ("label",))
        labels = tuple(name for name in header if name.startswith(_LABEL))
        values = tuple(name for name in header if name == "target" or name.startswith(_TARGET))
        if labels and values:
            raise InputError(f"the header has both {labels[0]!r} and {values[0]!r}, targets of one kind are needed")
        if not labels and not values:
            raise InputError(f"the header has no column 'label', {NEEDED}")
        return cls("labels", labels) if labels else cls("values", values)

    def add(self, cells: Sequence[str]) -> bool:
        """Adds those of one node; says whether it has any. Raises `InputError`, without the line, for a bad cell."""
        given = [cell for cell in cells if cell]
        if given and len(given) < len(cells):
            column = self.columns[cells.index("")]
            raise InputError(f"{column!r} is empty and {len(given)} other target(s) are not, all or none are needed")
        if self.kind == "classes":
            if cells[0] in ("nan", "NaN"):  # as programs write a missing number; it would be one more class
                raise InputError(f"'label' is {cells[0]!r}, a missing value: leave the cell of no label empty")
            self.rows.append(cells[0])
        elif not given:
            self.rows.append([UNLABELLED if self.kind == "labels" else math.nan] * len(cells))
        else:
            self.rows.append([self._number(column, cell) for column, cell in zip(self.columns, cells, strict=True)])
        return bool(given)

    def _number(self, column: str, cell: str) -> float:
        if self.kind == "labels" and cell not in ("0", "1"):
            raise InputError(f"{column!r} is {cell!r}, 0 or 1 is needed")
        try:
            value = float(cell)
        except ValueError:
            value = math.nan
        if not math.isfinite(value):
            raise InputError(f"{column!r} is {cell!r}, a finite number is needed, or an empty cell for no target")
        return value

    def arguments(self, known: Sequence[str] = ()) -> dict[str, Any]:
        """The arguments of `Graph.create` that say what is to be predicted. Classes that are known come first."""
        if self.kind == "classes":
            classes = [*known, *ordered_classes({label for label in self.rows if label} - set(known))]
            number = {label: place for place, label in enumerate(classes)} | {"": UNLABELLED}
            return {"y": torch.tensor([number[label] for label in self.rows]), "class_names": classes}
        names = [name.removeprefix(_LABEL).removeprefix(_TARGET) for name in self.columns]
        dtype = torch.int8 if self.kind == "labels" else torch.float64
        return {"y": torch.tensor(self.rows, dtype=dtype), "class_names": names}


def ordered_classes(labels: set[str]) -> list[str]:
    """Sorted as numbers if all are whole numbers ("10" after "9"), else as text."""
    if all(re.fullmatch(r"[+-]?[0-9]+", label) for label in labels):
        return sorted(labels, key=lambda label: (int(label), label))
    return sorted(labels)
