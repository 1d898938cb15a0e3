"""Random salts. Without the salt nobody can test guesses against a published hash."""

from __future__ import annotations

import os

import numpy as np

SALT_BYTES = 32


def new_salt() -> bytes:
    return os.urandom(SALT_BYTES)


def new_salts(records: np.ndarray) -> np.ndarray:
    """A random salt for each of k records of as many bytes, k x 32; zeros for one that is zeros."""
    salts = np.frombuffer(os.urandom(records.size), dtype=np.uint8).reshape(records.shape).copy()
    salts[~records.any(axis=1)] = 0
    return salts
