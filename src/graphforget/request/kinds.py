"""The kinds of things that a request can name."""

from __future__ import annotations

from typing import Literal, get_args

Kind = Literal["nodes", "edges", "attributes", "partial attributes", "graphs", "labels", "edge weights"]
KINDS: tuple[Kind, ...] = get_args(Kind)
