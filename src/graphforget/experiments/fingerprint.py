"""A digest of the settings that cells depend on beside their keys, so that other settings are recognised."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from functools import cache
from typing import Any

from graphforget.models.registry import MODELS, ModelEntry

RECIPE = "paper"  # of the trainings in the experiments of the paper
QUICK = "quick"  # the default recipe, of the newer experiments
# The models of the experiments: another model changes no cell.
USED = (
    *("sgc", "sign", "cgu", "gcn", "gat", "gin"),
    *("linearised-gcn", "linearised-gat", "linearised-gin"),
    *("sharded-sgc", "sharded-gcn", "sharded-gat", "sharded-gin", "sharded-released"),
)
EDITION = 1  # raise it when the meaning or a constant of an experiment changes

# By model and recipe, the settings of the cells that were computed before their own settings were stored.
FIRST = {
    "gcn, quick": "08d6b110db50d547",
    "graph-sign, quick": "a440f078512d56fa",
    "graph-stacked-gin, quick": "047d9db3e0af9271",
    "graph-wl, quick": "3fa5594ebfc6643c",
    "link-sgc, quick": "a1002051084c6f6f",
    "link-sign, quick": "9e008b7bdbbf65d5",
    "link-stacked-gcn, quick": "ce4369e8fa1f5b6a",
    "scalegun, quick": "920b299ba8ea1047",
    "sgc, quick": "076d93f66b93b019",
    "sign, quick": "a773e409d009aa53",
    "stacked-gcn, paper": "e2931ee1db3a6252",
    "stacked-gcn, quick": "e2931ee1db3a6252",
}


@cache
def fingerprint() -> str:
    """The digest of the settings of the models, trained by the paper's recipe, and of the edition of the experiments.

    The quick recipe is not part of it: see `further_settings`.
    """
    return _digest([EDITION, {name: _settings(MODELS[name], RECIPE) for name in USED}])


def further_settings(model: object, recipe: str) -> str | None:
    """The digest of the settings of a cell's own model where the fingerprint does not hold them; None if it does."""
    if recipe == RECIPE and model in USED:
        return None
    return _digest(_settings(MODELS[model], recipe)) if isinstance(model, str) and model in MODELS else None


def same_settings(model: object, recipe: str, stored: object) -> bool:
    """Whether a stored digest of `further_settings` is today's. A cell without one is of the digest in `FIRST`."""
    today = further_settings(model, recipe)
    return today is None or today == (FIRST.get(f"{model}, {recipe}") if stored is None else stored)


def _settings(entry: ModelEntry, recipe: str) -> dict[str, Any]:
    fields = (field.name for field in dataclasses.fields(entry) if field.name not in ("build", "paper", "composite"))
    return {name: getattr(entry, name) for name in fields} | dataclasses.asdict(entry.schedule(recipe))


def _digest(settings: Any) -> str:
    return hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()[:16]
