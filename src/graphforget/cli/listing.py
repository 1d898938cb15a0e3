"""The commands that list the datasets, the models and the methods."""

from __future__ import annotations

import dataclasses

import graphforget as gf
from graphforget.cli.console import show
from graphforget.cli.options import AsJson
from graphforget.plugins import METHODS as METHODS_GROUP
from graphforget.plugins import has_plugins
from graphforget.request.kinds import KINDS, Kind
from graphforget.unlearning.catalogue import CATALOGUE, MethodInfo

BUILT_IN = "graphforget"  # where a method comes from


def datasets(as_json: AsJson = False) -> None:
    """List the datasets. Own data is a folder with CSV files or in TU format, or a PyG .pt file."""
    rows = [
        {
            "name": name,
            "graphs": d.graphs,
            "nodes": d.nodes,
            "edges": d.edges,
            "columns": d.columns,
            "classes": d.classes,
            "title": d.title,
            "source": d.source,
        }
        for name, d in gf.DATASETS.items()
    ]
    show(rows, as_json=as_json, hidden=("title", "source"))


def models(as_json: AsJson = False) -> None:
    """List the built-in models. From Python, any torch.nn.Module called as module(x, edge_index) works too."""
    rows = [
        {
            "name": entry.name,
            "model": entry.title,
            "certifiable": entry.affine and not entry.objective_noise,
            "mu": entry.mu,
            "sigma": entry.sigma,
            "epochs": entry.epochs,
            "learning_rate": entry.learning_rate,
            "polish_steps": entry.polish_steps,
            "paper_recipe": dataclasses.asdict(entry.schedule("paper")),
        }
        for entry in gf.MODELS.values()
    ]
    show(rows, as_json=as_json, hidden=("epochs", "learning_rate", "polish_steps", "paper_recipe"))


def methods(as_json: AsJson = False) -> None:
    """List the unlearning methods, the kinds of request that they can answer, and their best level."""
    rows = [
        {
            "name": method.name,
            "method": method.title,
            "forgets": _kinds(method.kinds),
            "models": method.models,
            "level": method.level,
            "sequential": method.sequential,
            "reference": method.reference,
            "from": source,
        }
        for method, source in _methods()
    ]
    hidden = ("method",) if any(row["from"] != BUILT_IN for row in rows) else ("method", "from")
    show(rows, as_json=as_json, hidden=hidden)


def _methods() -> list[tuple[MethodInfo, str]]:
    """The methods, and the package that each comes from. Other packages are imported only if there are any."""
    listed = [(method, BUILT_IN) for method in CATALOGUE]
    if not has_plugins(METHODS_GROUP):
        return listed
    from graphforget.unlearning.registry import plugged_methods

    names = [field.name for field in dataclasses.fields(MethodInfo)]
    plugged = plugged_methods().values()
    return listed + [(MethodInfo(**{n: getattr(one.value, n) for n in names}), one.package) for one in plugged]


def _kinds(kinds: frozenset[Kind]) -> str:
    """The kinds of requests in words."""
    if len(kinds) == len(KINDS):
        return "all kinds"
    names = {"attributes": "attributes" if "partial attributes" in kinds else "whole attribute rows"}
    return ", ".join(names.get(kind, kind) for kind in KINDS if kind in kinds)
