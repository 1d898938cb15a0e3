"""What numbers of cells depend on beside their keys, so that cells of other settings are not taken for ours."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from functools import cache

from graphforget.models.registry import MODELS

EDITION = 1  # to be raised when an experiment comes to mean something else, or a constant of it changes


@cache
def fingerprint() -> str:
    """Of the models' defaults and of this edition of the experiments."""
    defaults = {
        name: {field.name: getattr(entry, field.name) for field in dataclasses.fields(entry) if field.name != "build"}
        for name, entry in MODELS.items()
    }
    return hashlib.sha256(json.dumps([EDITION, defaults], sort_keys=True).encode()).hexdigest()[:16]
