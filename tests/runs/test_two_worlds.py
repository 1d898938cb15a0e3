"""Nothing that is published depends on what was deleted, other than through the noised weights (docs/maths.md, 12).

Two worlds have the same retained graph, settings and node numbers, and differ in what is deleted: labels, roles,
attributes and degrees of the nodes that go, which edges go, the values and labels that are forgotten, how much goes.
Everything that is published is compared: documents, exit codes, levels, names and sizes of files.
"""

from __future__ import annotations

import dataclasses
import json
import re
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

import graphforget as gf
from adopted_cases import Normalised, plain_loop
from cases import CLASSES, COLUMNS, Run, random_graph, with_targets
from graphforget.report.card import card_markdown
from graphforget.report.content import run_content

# The fields that may differ: ids, times, salted digests, signatures, and the noised weights with their score. Hashes of
# the ledger are over documents that hold them.
MAY_DIFFER = {
    "id",
    "made",
    "time",
    "request_id",
    *(f"digests.{name}" for name in ("request", "annex", "state", "graph", "weights", "released", "slots", "subjects")),
    "request_digest",
    "certificate_digest",
    "follows",
    "previous",
    "hash",
    "head",
    "signature.value",
    *(f"test_{score}.released" for score in ("micro_f1", "macro_f1", "r2", "rmse", "auc", "average_precision")),
}
PUBLIC_FILES = ("certificate.json", "outcome.json", "released.safetensors")

LINKS = {"test": 0.3, "messages": 0.5, "negatives": 4}
MODELS: dict[str, tuple[str, dict[str, Any], list[str]]] = {  # the model's name, its options, how it forgets
    "sgc": ("sgc", {}, []),
    "sign": ("sign", {"hops": 2}, []),
    "linearised-gcn": ("linearised-gcn", {"hidden": 5}, []),
    "cgu": ("cgu", {}, ["--method", "cgu"]),
    "grapheraser": ("sharded-gcn", {"hidden": 5, "shards": 2, "epochs": 3}, ["--method", "grapheraser"]),
    "sharded": ("sharded-gcn", {"hidden": 5, "shards": 2, "epochs": 3}, []),
    "sgc, smaller epsilon": ("sgc", {}, ["--epsilon", "0.01", "--method", "retrain"]),
    "gcn": ("gcn", {"hidden": 5, "epochs": 3, "polish_steps": 1}, []),
    "retrained sgc": ("sgc", {}, ["--method", "retrain"]),
    "sgc without noise": ("sgc", {"sigma": 0.0}, []),
    "stacked": ("stacked-gcn", {"hidden": 3, "epochs": 3, "parts": 3}, []),
    "boosted": ("boosted-gcn", {"hidden": 3, "epochs": 3}, []),
    "link-sign": ("link-sign", LINKS, []),
    "retrained link-sgc": ("link-sgc", LINKS, ["--method", "retrain"]),
    "link-stacked-gcn": ("link-stacked-gcn", LINKS | {"hidden": 3, "epochs": 3, "parts": 2}, []),
    "adopted": ("adopted", {}, ["--retrain", "adopted_cases:retrain_normalised"]),
    "sgc of values": ("sgc", {}, []),
    "sgc of labels": ("sgc", {}, []),
    "stacked of values": ("stacked-gcn", {"hidden": 3, "epochs": 3, "parts": 3}, []),
    "gcn of labels": ("gcn", {"hidden": 5, "epochs": 3, "polish_steps": 1}, []),
}
LINK_MODELS = ("link-sign", "retrained link-sgc", "link-stacked-gcn")
ADOPTED = {"adopted": Normalised}  # trained elsewhere, in each of the worlds
NOISED = {"sgc", "sign", "linearised-gcn", "cgu", "retrained sgc", "sgc, smaller epsilon", "stacked", "boosted"}
NOISED |= {"sgc of values", "sgc of labels", "stacked of values", *LINK_MODELS}
# The others release the same bits in both worlds. So do stacked models, but for the weights of their heads.
KINDS = ("nodes", "edges", "attributes", "mixed", "labels")


class World(NamedTuple):
    graph: gf.Graph
    request: gf.Request
    more: tuple[gf.Request, ...] = ()  # those that are answered together with it

    def predicting(self, kind: str) -> World:
        """The same world, with labels or values that follow from the classes."""
        return self._replace(graph=with_targets(self.graph, kind))


def two_worlds(seed: int, kind: str) -> tuple[World, World]:
    """With the same retained graph, and as different as they can be in what goes."""
    rng = np.random.default_rng([seed, KINDS.index(kind)])
    n = int(rng.integers(10, 16))
    train = np.ones(n, dtype=bool)
    train[rng.choice(np.arange(CLASSES, n), size=3, replace=False)] = False
    y = np.concatenate([np.arange(CLASSES), rng.integers(0, CLASSES, n - CLASSES)])
    x = rng.normal(size=(n, COLUMNS)) * (rng.random((n, COLUMNS)) < 0.7)
    pairs = {tuple(sorted(rng.choice(n, size=2, replace=False).tolist())) for _ in range(2 * n)}
    forgotten = rng.choice(n, size=2, replace=False).tolist() if kind in ("attributes", "mixed") else []
    partial = bool(rng.integers(2))
    columns = [0, 2] if partial else list(range(COLUMNS))
    x[np.ix_(forgotten, columns)] = 0
    unlabelled = (
        rng.choice(np.arange(CLASSES, n), size=2, replace=False).tolist() if kind in ("labels", "mixed") else []
    )
    populations = []
    for world in range(2):
        own = np.random.default_rng([seed, KINDS.index(kind), world])
        more = int(own.integers(1, 4)) if kind in ("nodes", "mixed") else 0
        quiet = more > 0 and own.random() < 0.3  # far away, in no part of the split: training never saw it
        role = np.array([False] * more if quiet else own.random(more) < 0.7, dtype=bool)
        values = np.vstack([x, own.normal(size=(more, COLUMNS))])
        if own.random() < 0.7:  # otherwise what is forgotten was 0 before
            values[np.ix_(forgotten, columns)] = own.normal(size=(len(forgotten), len(columns)))
        labels = np.concatenate([y, own.integers(0, CLASSES, more)])
        labels[n:][~role] = -1
        trains, tests = np.concatenate([train, role]), np.concatenate([~train, np.zeros(more, dtype=bool)])
        for node in unlabelled:  # they had any label and any role, or none
            labels[node], place = own.integers(0, CLASSES), own.integers(3)
            trains[node], tests[node] = place == 0, place == 1
            labels[node] = -1 if place == 2 else labels[node]
        edges = set(pairs)
        if not quiet:
            edges |= {(int(own.integers(n)), n + new) for new in range(more) for _ in range(int(own.integers(0, 5)))}
        gone: set[tuple[int, int]] = set()
        while kind in ("edges", "mixed") and len(gone) < 1 + own.integers(3):
            pair = tuple(sorted(own.choice(n, size=2, replace=False).tolist()))
            gone |= {pair} - edges
        graph = gf.Graph.create(
            x=torch.from_numpy(values).to_sparse_csr() if seed % 2 else torch.from_numpy(values),
            edges=torch.tensor(sorted(edges | gone)).T,
            y=torch.from_numpy(labels),
            train_mask=torch.from_numpy(trains),
            test_mask=torch.from_numpy(tests),
            num_classes=CLASSES,
        )
        listed: Any = dict.fromkeys(forgotten, columns if partial else "all")
        populations.append(World(graph, gf.Request(range(n, n + more), sorted(gone), listed, labels=unlabelled)))
    first, second = populations
    assert first.graph.without(first.request).digest == second.graph.without(second.request).digest
    return first, second


def published(world: World, place: Path, model: str, run: Run, key: Path) -> dict[str, Any]:
    """Everything that leaves the operator's hands for the request, by its name."""
    name, options, how = MODELS[model]
    adopted = ADOPTED.get(model)
    module = () if adopted is None else ("--module", f"adopted_cases:{adopted.__name__}")
    own: Any = {} if adopted is None else {"model": adopted()}
    if adopted is None:
        trained = gf.train(world.graph, name, seed=0, **options)
    else:
        trained = gf.adopt(plain_loop(adopted(), world.graph.to_pyg()), world.graph)
    folder, page = place / "run", place / "report.html"
    gf.save_run(folder, trained, world.graph)
    asked: list[str] = []
    for number, request in enumerate((world.request, *world.more), start=1):
        path = place / f"request-{number}.json"
        path.write_text(json.dumps(request.to_dict()))
        asked += ["--request", str(path), "--id", f"request {number}"]
    codes = {}
    documents: dict[str, Any] = {}
    for command, *arguments in (
        ("unlearn", *asked, "--in-place", "--key", str(key), *how, *module),
        ("verify", "--key", f"{key}.pub", *module),
        ("ledger",),
        ("report", "--out", str(page), *module),
        ("card", "--out", str(place / "card.md"), *module),
    ):
        ended = run(command, folder, *arguments, "--json")
        codes[command] = ended.code
        assert ended.code == 0, ended.stderr
        documents[command] = json.loads(ended.stdout)
    del documents["unlearn"]["private"], documents["report"]["report"], documents["card"]["card"]
    assert (place / "card.md").read_text() == card_markdown(documents["card"])  # so the text is compared too
    documents["unlearn"] = {name: value for name, value in documents["unlearn"].items() if name != "run"}
    story = dataclasses.asdict(run_content(folder, key=gf.public_key(f"{key}.pub"), **own))
    assert story["audience"].startswith("public")
    for part in ("pictures", "certificate", "made"):  # drawn from the score; the document, compared above; the time
        del story[part]
    story["facts"] = [fact for fact in story["facts"] if fact[0] != "certificate"]
    weights = load_file(folder / "released.safetensors")
    if model in NOISED:
        del weights["theta"]
    encoders = {name: value.numpy().tobytes() for name, value in weights.items() if model != "boosted"}
    return {
        "weights": encoders,
        "codes": codes,
        "documents": documents,
        "files": {name: json.loads((folder / name).read_text()) for name in PUBLIC_FILES if name.endswith("json")},
        "names": sorted(path.name for path in folder.iterdir()),
        "sizes": {name: (folder / name).stat().st_size for name in PUBLIC_FILES},
        "story": story,
    }


def differences(first: Any, second: Any, path: str = "") -> list[str]:
    """Where two documents differ, but for what may."""
    if isinstance(first, dict) and isinstance(second, dict):
        names = dict.fromkeys([*first, *second])
        return [
            line
            for name in names
            for line in differences(first.get(name), second.get(name), f"{path}.{name}".lstrip("."))
        ]
    if isinstance(first, list | tuple) and isinstance(second, list | tuple) and len(first) == len(second):
        pairs = zip(first, second, strict=True)
        return [line for one, other in pairs for line in differences(one, other, path)]
    allowed = any(path == name or path.endswith(f".{name}") for name in MAY_DIFFER)
    return [] if allowed or _plain(first) == _plain(second) else [f"{path}: {first!r} against {second!r}"]


def _plain(value: Any) -> Any:
    """Texts without the abbreviated key of who signed: it is the same key, and no more than that."""
    return re.sub(r"\s+", " ", value) if isinstance(value, str) else value


def check(seed: int, model: str, tmp_path: Path, run: Run, key: Path) -> None:
    kind = KINDS[seed % len(KINDS)]
    one, other = (world.predicting(model.partition(" of ")[2] or "classes") for world in two_worlds(seed, kind))
    documents = []
    for number, world in enumerate((one, other)):
        place = tmp_path / f"{seed}-{number}"
        place.mkdir()
        documents.append(published(world, place, model, run, key))
    assert differences(documents[0], documents[1]) == [], (seed, model, kind)


@pytest.fixture
def key(tmp_path: Path) -> Path:
    gf.make_keys(tmp_path / "key")
    return tmp_path / "key"


@pytest.mark.parametrize(
    "model", [pytest.param(model, marks=() if model == "sgc" else pytest.mark.slow) for model in MODELS]
)
def test_what_is_published_is_the_same_in_two_worlds(model: str, tmp_path: Path, run: Run, key: Path) -> None:
    for seed in range(len(KINDS)):
        check(seed, model, tmp_path, run, key)


@pytest.mark.parametrize("was", [0.0, 1.5])
def test_no_digest_tells_whether_a_request_changed_anything(was: float, tmp_path: Path) -> None:
    """The second request names a value that was 0 already in one of the worlds. Equal roots would tell."""
    plain = random_graph(5, nodes=12, edges=20)
    x = plain.x.to_dense().clone()
    x[3, 1] = was
    graph = dataclasses.replace(plain, x=x, subject_ids=tuple(f"person-{row}" for row in range(12)))
    gf.save_run(tmp_path / "run", gf.train(graph, "sgc"), graph)
    requests = [gf.Request(nodes=["person-7"]), gf.Request(attributes={"person-3": [1]})]
    outcomes = [gf.answer(tmp_path / "run", request).outcome for request in requests]
    first, second = (outcome.certificate.digests for outcome in outcomes if outcome is not None)
    assert {"slots", "subjects"} < set(first)
    assert [name for name in first if first[name] == second[name]] == []


@pytest.mark.long
@pytest.mark.parametrize("part", range(10))
@pytest.mark.parametrize("model", MODELS)
def test_what_is_published_is_the_same_in_hundreds_of_pairs_of_worlds(
    model: str, part: int, tmp_path: Path, run: Run, key: Path
) -> None:
    for seed in range(100 + 4 * part, 104 + 4 * part):
        check(seed, model, tmp_path, run, key)


@pytest.mark.slow
def test_a_leak_would_be_seen(tmp_path: Path, run: Run, key: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Were the number of removed training nodes published, the comparison would find it."""
    honest = gf.Outcome.public
    monkeypatch.setattr(
        gf.Outcome,
        "public",
        lambda self: honest(self) | {"removed": self.touched.removed.numel()},
    )
    with pytest.raises(AssertionError, match="removed"):
        check(0, "sgc", tmp_path, run, key)


def test_the_worlds_are_as_different_as_they_should_be() -> None:
    """Empty against non-empty footprints, requests of different size, values that were 0 already."""
    sizes, empty = 0, 0
    for seed in range(40):
        populations = two_worlds(seed, KINDS[seed % len(KINDS)])
        first, second = (gf.footprint(world.graph, world.request, gf.Reach(2)) for world in populations)
        sizes += repr(populations[0].request) != repr(populations[1].request)
        empty += first.empty != second.empty
    assert sizes > 10
    assert empty > 3


def test_the_published_score_is_that_of_the_released_weights() -> None:
    graph = random_graph(3, nodes=60, edges=90).split(seed=0, test=0.4)
    trained = gf.train(graph, "sgc", sigma=1000.0)
    outcome = gf.unlearn(trained, graph, gf.Request(nodes=[graph.name_of(int(graph.train_rows[0]))]), noise_seed=1)
    scores = outcome.released.micro_f1(outcome.graph), outcome.trained.micro_f1(outcome.graph)
    assert scores[0] != scores[1]
    assert outcome.public()["test_micro_f1"] == {"released": scores[0]}
