"""Files that are written as a whole or not at all."""

from __future__ import annotations

import os
import secrets
from pathlib import Path

STAGED = ".part"  # how the name ends of a file that was being written when its process was killed


def write_whole(path: Path, content: bytes, *, mode: int | None = None) -> None:
    """Puts `content` in the place of what is there. A failure leaves what was there before, and nothing else."""
    staged = path.with_name(f".{path.name}.{os.getpid()}-{secrets.token_hex(4)}{STAGED}")
    try:
        staged.write_bytes(content)
        if mode is not None:
            staged.chmod(mode)
        os.replace(staged, path)
    finally:
        staged.unlink(missing_ok=True)
