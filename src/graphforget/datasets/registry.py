"""Graphs to train on: some by name, and others from files."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType

import torch

from graphforget.errors import InputError
from graphforget.graph.graph import Graph
from graphforget.graph.targets import has_target

SPLITS = ("random", "public", "given")


Read = Callable[[str, str | Path | None], Graph]  # name, root -> graph with its public split, if it has one


def _read_patients(name: str, root: str | Path | None) -> Graph:
    from graphforget.datasets.patients import read_patients

    return read_patients()


def _read_planetoid(name: str, root: str | Path | None) -> Graph:
    from graphforget.datasets.locate import raw_folder
    from graphforget.datasets.planetoid import read_planetoid

    return read_planetoid(raw_folder(name, root=root), name)


def _read_coauthor(name: str, root: str | Path | None) -> Graph:
    from graphforget.datasets.coauthor import read_coauthor
    from graphforget.datasets.locate import RAW_FILES, raw_folder

    (file,) = RAW_FILES[name].checksums
    return read_coauthor(raw_folder(name, root=root) / file, name)


def _read_heterophilous(name: str, root: str | Path | None) -> Graph:
    from graphforget.datasets.heterophilous import read_heterophilous
    from graphforget.datasets.locate import RAW_FILES, raw_folder

    (file,) = RAW_FILES[name].checksums
    return read_heterophilous(raw_folder(name, root=root) / file, name)


def _read_facebook(name: str, root: str | Path | None) -> Graph:
    from graphforget.datasets.facebook import read_facebook
    from graphforget.datasets.locate import raw_folder

    return read_facebook(raw_folder(name, root=root), name)


def _read_tu(name: str, root: str | Path | None) -> Graph:
    from graphforget.datasets.locate import raw_folder
    from graphforget.datasets.tu import read_tu

    return read_tu(raw_folder(name, root=root), name=name)


def _read_deezer_egos(name: str, root: str | Path | None) -> Graph:
    from graphforget.datasets.locate import published_file
    from graphforget.datasets.tu import read_deezer_egos

    return read_deezer_egos(published_file(name, root=root), name)


@dataclass(frozen=True)
class Dataset:
    """A dataset that `load` knows by name. Edges are undirected and counted once."""

    title: str
    nodes: int
    edges: int
    columns: int
    classes: int
    source: str
    read: Read = field(repr=False)
    has_public_split: bool = False
    graphs: int = 1  # more than one: a collection, with nodes and edges of all graphs together


_TABLE = "scikit-learn (Wolberg, Street and Mangasarian 1995)"
_PLANETOID = "Planetoid (Yang, Cohen and Salakhutdinov 2016)"
_COAUTHOR = "gnn-benchmark (Shchur et al. 2018)"
_HETEROPHILOUS = "heterophilous-graphs (Platonov et al. 2023)"
_MUSAE = "MUSAE (Rozemberczki, Allen and Sarkar 2021)"
_TU = "TUDataset (Morris et al. 2020)"
_DEEZER = "Karate Club (Rozemberczki, Kiss and Sarkar 2020)"

DATASETS: Mapping[str, Dataset] = MappingProxyType(
    {
        "patients": Dataset("Breast cancer patients", 569, 2_140, 30, 2, _TABLE, _read_patients),
        "cora": Dataset("Cora", 2_708, 5_278, 1_433, 7, _PLANETOID, _read_planetoid, True),
        "citeseer": Dataset("CiteSeer", 3_327, 4_552, 3_703, 6, _PLANETOID, _read_planetoid, True),
        "pubmed": Dataset("PubMed", 19_717, 44_324, 500, 3, _PLANETOID, _read_planetoid, True),
        "cs": Dataset("Coauthor CS", 18_333, 81_894, 6_805, 15, _COAUTHOR, _read_coauthor),
        "physics": Dataset("Coauthor Physics", 34_493, 247_962, 8_415, 5, _COAUTHOR, _read_coauthor),
        "tolokers": Dataset("Tolokers", 11_758, 519_000, 10, 2, _HETEROPHILOUS, _read_heterophilous, True),
        "minesweeper": Dataset("Minesweeper", 10_000, 39_402, 7, 2, _HETEROPHILOUS, _read_heterophilous, True),
        "facebook-large": Dataset("Facebook pages", 22_470, 170_823, 4_714, 4, _MUSAE, _read_facebook),
        "mutag": Dataset("MUTAG", 3_371, 3_721, 7, 2, _TU, _read_tu, graphs=188),
        "enzymes": Dataset("ENZYMES", 19_580, 37_282, 21, 6, _TU, _read_tu, graphs=600),
        "imdb-binary": Dataset("IMDB-BINARY", 19_773, 96_531, 1, 2, _TU, _read_tu, graphs=1_000),
        "proteins": Dataset("PROTEINS", 43_471, 81_044, 4, 2, _TU, _read_tu, graphs=1_113),
        "nci1": Dataset("NCI1", 122_747, 132_753, 37, 2, _TU, _read_tu, graphs=4_110),
        "deezer-egos": Dataset("Deezer ego networks", 226_213, 628_303, 1, 2, _DEEZER, _read_deezer_egos, graphs=9_629),
    }
)


# Longer than 50 lines because of its documentation.
def load(
    name_or_path: str | Path,
    *,
    seed: int = 0,
    split: str | None = None,
    target: str | None = None,
    root: str | Path | None = None,
    like: Graph | None = None,
) -> Graph:
    """A graph by name (see `DATASETS`), from a folder with nodes.csv and edges.csv, or from a PyG file (.pt).

    A folder in the format of the TU datasets (`NAME_A.txt`, `NAME_graph_indicator.txt` ...) is a collection of graphs,
    and so is a PyG file with a list of `Data`.

    Edges in a CSV folder count in both directions; for directed edges use `Graph.from_csv(folder, directed=True)`.

    Args:
        name_or_path: The name of a dataset in upper or lower case, or a path. A folder that has the name of a dataset
            is given as a `Path` or as "./name".
        seed: Decides the random split.
        split: The training and test nodes. "random": 90/10 of the labelled nodes or graphs, as in the paper. "public":
            the fixed split of the benchmark (cora, citeseer and pubmed), or the first of its ten (tolokers and
            minesweeper). "given": the masks of the files; without masks every labelled node is a training node. None:
            "given" for files in which a labelled node is not a training node, else "random".
        target: For a PyG file with a `HeteroData`, the type of the nodes that are predicted.
        root: The folder with the raw files of the datasets. By default they are looked for in $GRAPHFORGET_DATA and
            in ~/.cache/graphforget, and downloaded into the latter if necessary. `patients` needs none.
        like: An earlier state of the graph of the files, such as that of a model. Its classes are those of the new
            state too, even if no node is left in one.

    Returns:
        The graph with its split.

    Raises:
        InputError: If there is no such dataset or file, if it cannot be read, or if it does not have this split.
    """
    if split is not None and split not in SPLITS:
        raise InputError(f"split {split!r} is not known, there are {', '.join(SPLITS)}")
    if not isinstance(name_or_path, str | Path):
        raise InputError(f"the dataset is a {type(name_or_path).__name__}, a name or a path is needed")
    name = name_or_path.lower() if isinstance(name_or_path, str) else ""
    if name in DATASETS:
        if target is not None:
            raise InputError(f"the target is {target!r}, and the nodes of {name} have no types")
        return _load_named(name, seed=seed, split=split, root=root)
    graph = _read_own(Path(name_or_path), target, like)
    if split == "public":
        raise InputError(f"{name_or_path} has no 'public' split, 'random' and 'given' are possible for it")
    if split is None and not graph.train_mask.any():  # without labels: for links, which have a split of their own
        return graph
    if split == "given" or (split is None and not torch.equal(graph.train_mask, has_target(graph.y))):
        return graph
    return graph.split(seed=seed)


def _load_named(name: str, *, seed: int, split: str | None, root: str | Path | None) -> Graph:
    dataset = DATASETS[name]
    if split == "given" or (split == "public" and not dataset.has_public_split):
        allowed = "'random' and 'public' are" if dataset.has_public_split else "only 'random' is"
        raise InputError(f"{name} has no {split!r} split, {allowed} possible for it")
    graph = dataset.read(name, root)
    return graph if split == "public" else graph.split(seed=seed)


def _read_own(path: Path, target: str | None, like: Graph | None) -> Graph:
    from graphforget.datasets.pyg_file import read_pyg_file
    from graphforget.datasets.sharded_folder import is_sharded
    from graphforget.datasets.tu import read_tu, tu_name

    if is_sharded(path):
        raise InputError(f"{path} is a graph in parts: start the command with 'graphforget launch' or torchrun")
    if path.is_dir() and target is not None:
        raise InputError(f"the target is {target!r}, which only a PyG file with a HeteroData needs")
    if path.is_dir():
        raw = path / "raw" if not (path / "nodes.csv").exists() and tu_name(path) is None else path
        known = like.class_names if like is not None and like.target_kind == "classes" else None
        return read_tu(raw) if tu_name(raw) is not None else Graph.from_csv(path, class_names=known or ())
    if path.is_file() and path.suffix.lower() == ".pt":
        return read_pyg_file(path, target=target, like=like)
    raise InputError(
        f"{str(path)!r} is neither a dataset ({', '.join(DATASETS)}) "
        "nor a folder with nodes.csv and edges.csv nor a PyG file that ends in .pt"
    )
