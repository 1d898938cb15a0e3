"""Whether this process is a rank of torchrun. It loads no torch."""

from __future__ import annotations

import os


def is_launched() -> bool:
    """Whether torchrun, or another launcher of torch, started this process as one of its ranks."""
    return all(name in os.environ for name in ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"))
