"""The commands that list the datasets, the models and the methods."""

from __future__ import annotations

import dataclasses

import graphforget as gf
from graphforget.cli.console import show
from graphforget.cli.options import AsJson
from graphforget.request.kinds import KINDS, Kind
from graphforget.unlearning.catalogue import CATALOGUE


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
        }
        for method in CATALOGUE
    ]
    show(rows, as_json=as_json, hidden=("method",))


def _kinds(kinds: frozenset[Kind]) -> str:
    """The kinds of requests in words."""
    if len(kinds) == len(KINDS):
        return "all kinds"
    names = {"attributes": "attributes" if "partial attributes" in kinds else "whole attribute rows"}
    return ", ".join(names.get(kind, kind) for kind in KINDS if kind in kinds)
