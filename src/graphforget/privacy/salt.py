"""Random salts. Without the salt nobody can test guesses against a published hash."""

from __future__ import annotations

import os

SALT_BYTES = 32


def new_salt() -> bytes:
    return os.urandom(SALT_BYTES)
