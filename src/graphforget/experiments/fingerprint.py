"""A digest of the settings that cells depend on beside their keys, so that other settings are recognised."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from functools import cache

from graphforget.models.registry import MODELS

EDITION = 1  # raise it when the meaning or a constant of an experiment changes


@cache
def fingerprint() -> str:
    """The digest of the default settings of all models and of the edition of the experiments."""
    defaults = {
        name: {field.name: getattr(entry, field.name) for field in dataclasses.fields(entry) if field.name != "build"}
        for name, entry in MODELS.items()
    }
    return hashlib.sha256(json.dumps([EDITION, defaults], sort_keys=True).encode()).hexdigest()[:16]
