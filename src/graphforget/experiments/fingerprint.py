"""A digest of the settings that cells depend on beside their keys, so that other settings are recognised."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from functools import cache
from typing import Any

from graphforget.models.registry import MODELS, ModelEntry

RECIPE = "paper"  # of every training in the experiments
# The models of the experiments: another model changes no cell.
USED = (
    *("sgc", "sign", "cgu", "gcn", "gat", "gin"),
    *("linearised-gcn", "linearised-gat", "linearised-gin"),
    *("sharded-sgc", "sharded-gcn", "sharded-gat", "sharded-gin", "sharded-released"),
)
EDITION = 1  # raise it when the meaning or a constant of an experiment changes


@cache
def fingerprint() -> str:
    """The digest of the settings of the models, trained by the paper's recipe, and of the edition of the experiments.

    The quick recipe is not part of it, because no experiment uses it.
    """
    defaults = {name: _settings(MODELS[name]) for name in USED}
    return hashlib.sha256(json.dumps([EDITION, defaults], sort_keys=True).encode()).hexdigest()[:16]


def _settings(entry: ModelEntry) -> dict[str, Any]:
    fields = (field.name for field in dataclasses.fields(entry) if field.name not in ("build", "paper", "composite"))
    return {name: getattr(entry, name) for name in fields} | dataclasses.asdict(entry.schedule(RECIPE))
