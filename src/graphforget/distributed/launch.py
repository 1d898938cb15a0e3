"""Whether this process is a rank, of torchrun or of `graphforget launch`. It loads no torch."""

from __future__ import annotations

import os

STORE = "GRAPHFORGET_STORE"  # a variable: the folder of `graphforget launch` in which the ranks find each other
ENDED_FILE = "ended"  # in it: the exit code with which all ranks have ended on purpose
BACKEND = "GRAPHFORGET_BACKEND"  # a variable: which of these moves the messages
GLOO, NCCL = "gloo", "nccl"


def is_launched() -> bool:
    """Whether torchrun, `graphforget launch` or another launcher of torch started this process as one of its ranks."""
    ranked = all(name in os.environ for name in ("RANK", "WORLD_SIZE"))
    return ranked and (STORE in os.environ or all(name in os.environ for name in ("MASTER_ADDR", "MASTER_PORT")))
