"""Settings that the experiments share: the paper's datasets, models and constants, and estimated times."""

from __future__ import annotations

from collections.abc import Sequence

from graphforget.experiments.cells import Row

DATA = ("cora", "citeseer", "pubmed", "cs", "physics")
GNNS = ("gcn", "sgc", "gin", "gat")
CERTIFIED = ("sgc", "sign", "stacked-gcn")  # released with noise, in every table
CERTIFIED_PART = "certified"  # of cells that hold one of these models alone
PARTITIONS = ("random", "bekm", "blpa")
SHARDS = {"patients": 5, "cora": 10, "citeseer": 10, "pubmed": 30, "cs": 30, "physics": 100}
FEWER_EPOCHS = 50  # instead of 200, for each of the many shards of a network on a larger graph
SHARES = (0.001, 0.01, 0.05, 0.1)

EPSILON = 1.0
DELTA = 1e-5

QUICK_EPOCHS = 30

TITLES = {
    "patients": "patients",
    "cora": "Cora",
    "citeseer": "CiteSeer",
    "pubmed": "PubMed",
    "cs": "CS",
    "physics": "Physics",
    "gcn": "GCN",
    "sgc": "SGC",
    "gin": "GIN",
    "gat": "GAT",
    "sign": "SIGN",
    "linearised-gcn": "linearised GCN",
    "stacked-gcn": "stacked GCN",
    "minesweeper": "Minesweeper",
    "tolokers": "Tolokers",
    "mutag": "MUTAG",
    "nci1": "NCI1",
    "before": "before the request",
    "nothing": "no_op (old weights)",
    "retrain": "re-training",
    "random": "GraphEraser, random",
    "bekm": "GraphEraser, BEKM",
    "blpa": "GraphEraser, BLPA",
    "cgu": "CGU",
    "idea": "IDEA",
    "newton": "certified (Newton)",
    "scalegun": "ScaleGUN",
    "gif": "GIF",
    "ascent": "gradient ascent",
    "gnndelete": "GNNDelete",
    "megu": "MEGU",
}

# Seconds on one core with the default epochs: training, and one step of IDEA.
_TRAIN: dict[str, dict[str, float]] = {
    "gcn": {"patients": 2, "cora": 6, "citeseer": 7, "pubmed": 57, "cs": 72, "physics": 138},
    "gin": {"patients": 2, "cora": 6, "citeseer": 7, "pubmed": 31, "cs": 23, "physics": 79},
    "gat": {"patients": 2, "cora": 7, "citeseer": 9, "pubmed": 99, "cs": 104, "physics": 180},
    "sgc": {"patients": 0.1, "cora": 0.1, "citeseer": 0.1, "pubmed": 0.5, "cs": 2.7, "physics": 1.0},
    "sign": {"patients": 0.1, "cora": 0.3, "citeseer": 0.8, "pubmed": 3, "cs": 8, "physics": 8},
    "stacked-gcn": {"patients": 1, "cora": 2, "citeseer": 3, "pubmed": 8, "cs": 20, "physics": 30},
    "linearised-gcn": {"patients": 1, "cora": 4, "citeseer": 5, "pubmed": 120, "cs": 150, "physics": 320},
    "cgu": {"patients": 0.1, "cora": 0.3, "citeseer": 0.5, "pubmed": 1, "cs": 5, "physics": 3},
}
_IDEA: dict[str, dict[str, float]] = {
    "gcn": {"patients": 0.2, "cora": 0.5, "citeseer": 0.5, "pubmed": 2, "cs": 3, "physics": 5},
    "gin": {"patients": 0.2, "cora": 0.9, "citeseer": 0.8, "pubmed": 8, "cs": 14, "physics": 50},
    "gat": {"patients": 0.2, "cora": 0.6, "citeseer": 0.6, "pubmed": 5, "cs": 10, "physics": 20},
}
_ERASER: dict[str, dict[str, float]] = {  # all shards trained
    "sgc": {"patients": 0.5, "cora": 1, "citeseer": 1, "pubmed": 5, "cs": 15, "physics": 20},
    "gcn": {"patients": 3, "cora": 6, "citeseer": 8, "pubmed": 53, "cs": 84, "physics": 322},
    "gin": {"patients": 3, "cora": 20, "citeseer": 25, "pubmed": 177, "cs": 202, "physics": 812},
    "gat": {"patients": 3, "cora": 15, "citeseer": 20, "pubmed": 135, "cs": 147, "physics": 700},
}

# The noise that the released code of the paper adds, chosen by hand: for GCN and SGC, then for GAT, then for GIN.
_HAND_PICKED = {
    "cora": (0.6, 0.005, 0.005),
    "citeseer": (0.6, 0.005, 0.005),
    "pubmed": (0.6, 0.005, 0.001),
    "cs": (0.1, 0.005, 0.005),
    "physics": (0.1, 0.005, 0.005),
}


def hand_picked_sigma(model: str, data: str) -> float:
    """The standard deviation of the noise in the paper's tables; that of Cora for a graph that is not in the paper."""
    linear, gat, gin = _HAND_PICKED.get(data, _HAND_PICKED["cora"])
    return {"gat": gat, "gin": gin}.get(model, linear)


def train_cost(model: str, data: str) -> float:
    return _TRAIN[model][data]


def training_part(epochs: int | None) -> float:
    """The part of the training cost with fewer epochs; what follows the epochs takes the same time."""
    return 1.0 if epochs is None else 0.4 + 0.6 * epochs / 300


def step_cost(model: str, data: str) -> float:
    """The cost of IDEA's step; for convex models that of Newton's steps, which is about that of training."""
    return _IDEA.get(model, _TRAIN[model])[data]


def eraser_cost(model: str, data: str) -> float:
    return _ERASER[model][data]


def shown(rows: Sequence[Row]) -> list[str]:
    """The datasets that rows are of, in the paper's order; all of the paper's if there is no row yet."""
    return [name for name in ("patients", *DATA) if any(row["data"] == name for row in rows)] or list(DATA)


def percent(share: float) -> str:
    """`5` for 0.05, as the paper's tables are headed."""
    return f"{100 * share:g}"


def titles_of(names: Sequence[str]) -> tuple[str, ...]:
    return tuple(TITLES.get(name, name) for name in names)
