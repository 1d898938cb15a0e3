"""Run directories: what is loaded is what was saved, nothing is half-written, damage is told in one sentence."""

from __future__ import annotations

import dataclasses
import json
import os
import pickle
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from torch_geometric.nn import GCNConv

import graphforget as gf
from cases import CLASSES, COLUMNS, OwnAPPNP, OwnGCN, idea, random_graph
from collection_cases import random_collection
from graphforget.certificates.annex import Annex
from graphforget.certificates.ledger import Ledger
from graphforget.runs import save, write
from graphforget.runs.history import History, read_history
from graphforget.runs.write import rewrite_checksums

FILES = {"run.json", "graph.json", "weights.safetensors", "graph.safetensors"}
SHORT: dict[str, Any] = {"epochs": 3, "polish_steps": 3, "mu": 1e-2}


class OwnNorm(nn.Module):
    """BatchNorm, a frozen parameter and a buffer: none of them is in theta, all of them decide the logits."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm, self.second = GCNConv(COLUMNS, 5), nn.BatchNorm1d(5), nn.Linear(5, CLASSES)
        self.frozen = nn.Parameter(torch.ones(CLASSES), requires_grad=False)
        self.register_buffer("shift", torch.zeros(CLASSES))

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return self.second(self.norm(self.first(x, edge_index)).relu()) * self.frozen + self.shift


def squared(logits: Tensor, labels: Tensor) -> Tensor:
    """A user's own loss."""
    return (logits - nn.functional.one_hot(labels, CLASSES)).square().sum(dim=1)


def tree(folder: Path) -> dict[str, bytes | None]:
    """Everything in a folder, hidden or not."""
    return {
        str(path.relative_to(folder)): path.read_bytes() if path.is_file() else None
        for path in sorted(folder.rglob("*"))
    }


def assert_same_graph(result: gf.Graph, graph: gf.Graph) -> None:
    for field in dataclasses.fields(gf.Graph):
        old, new = getattr(graph, field.name), getattr(result, field.name)
        if isinstance(old, Tensor):
            assert (new.layout, new.dtype, new.shape) == (old.layout, old.dtype, old.shape), field.name
            assert torch.equal(new.to_dense(), old.to_dense()), field.name
        else:
            assert new == (() if field.name == "notes" else old), field.name  # notes are of the input alone
            assert type(new) is type(old), field.name
    assert result.digest == graph.digest


def assert_same_trained(result: gf.Trained, trained: gf.Trained, graph: gf.Graph) -> None:
    assert result.theta.dtype == torch.float64
    assert torch.equal(result.theta, trained.theta)
    assert torch.equal(result.logits(graph), trained.logits(graph))
    assert not result.module.training
    assert result.summary() == trained.summary()
    assert result.loss.name == trained.loss.name
    old, new = (model.objective(graph).value(model.theta) for model in (trained, result))
    assert new == pytest.approx(old, rel=1e-13)  # where the tensors lie in memory decides the last digit
    for name in ("recipe", "reach", "obstacles"):
        assert getattr(result, name) == getattr(trained, name)


@pytest.fixture(scope="module")
def graph() -> gf.Graph:
    return random_graph(0)


@pytest.fixture(scope="module")
def trained(graph: gf.Graph) -> gf.Trained:
    return gf.train(graph, "sgc", mu=1e-2)


@pytest.fixture
def run(tmp_path: Path, trained: gf.Trained, graph: gf.Graph) -> Path:
    return gf.save_run(tmp_path / "run", trained, graph)


# -- round trips ---------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("name", gf.MODELS)
def test_every_built_in_model_survives(name: str, graph: gf.Graph, tmp_path: Path) -> None:
    options: dict[str, Any] = {"shards": 2} if name.startswith("sharded") else {}
    graph = random_collection(0) if name.startswith("graph-") else graph
    trained = gf.train(graph, name, seed=3, **SHORT, **options)
    assert gf.save_run(tmp_path / "run", trained, graph) == tmp_path / "run"
    result, found_graph = gf.load_run(tmp_path / "run")
    assert_same_graph(found_graph, graph)
    assert_same_trained(result, trained, graph)


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("sgc", {"hops": 3, "scale_rows": False}),
        ("gcn", {"hidden": 7}),
        ("gat", {"hidden": 2, "heads": 3}),
        ("linearised-gcn", {"hidden": 6, "weights_seed": 5}),
    ],
)
def test_the_options_of_a_model_survive(name: str, options: dict[str, Any], graph: gf.Graph, tmp_path: Path) -> None:
    trained = gf.train(graph, name.upper(), **SHORT, **options)
    result, _ = gf.load_run(gf.save_run(tmp_path / "run", trained, graph))
    assert result.recipe.options == options
    assert_same_trained(result, trained, graph)


@pytest.mark.parametrize("sparse", [False, True], ids=["dense", "sparse"])
@pytest.mark.parametrize("directed", [False, True], ids=["undirected", "directed"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_every_kind_of_graph_survives(sparse: bool, directed: bool, dtype: torch.dtype, tmp_path: Path) -> None:
    plain = random_graph(2, sparse=sparse, directed=directed)
    graph = gf.Graph.create(
        x=plain.x.to(dtype),
        edges=plain.edge_index,
        y=plain.y,
        train_mask=plain.train_mask,
        val_mask=plain.test_mask,
        directed=directed,
        subject_ids=[f"persön {row}\n" for row in range(plain.num_nodes)],
        column_names=["age", "größe", "0", "all"],
        class_names=["well", "ill", "unclear", "never seen"],
        name="the club",
    ).without(gf.Request(nodes=[4], attributes={5: "all"}))
    trained = gf.train(graph, "sgc", mu=1e-2)
    result, found_graph = gf.load_run(gf.save_run(tmp_path / "run", trained, graph))
    assert_same_graph(found_graph, graph)
    assert_same_trained(result, trained, graph)
    assert found_graph.without(gf.Request(nodes=[6])).digest == graph.without(gf.Request(nodes=[6])).digest


@pytest.mark.parametrize("edges", [0, 16])
def test_a_plain_graph_survives(edges: int, tmp_path: Path) -> None:
    graph = random_graph(1, edges=edges, unlabelled=0)
    result, found_graph = gf.load_run(gf.save_run(tmp_path / "run", gf.train(graph, mu=1e-2), graph))
    assert found_graph.subject_ids is None
    assert_same_graph(found_graph, graph)
    assert result.converged


def test_a_subject_id_of_digits_is_nobody_else_after_a_round_trip(tmp_path: Path) -> None:
    plain = random_graph(1)
    ids = ["5", *(f"n{row}" for row in range(1, plain.num_nodes))]
    graph = gf.Graph.create(x=plain.x, edges=plain.edge_index, y=plain.y, num_classes=CLASSES, subject_ids=ids)
    graph = graph.without(gf.Request(nodes=[5]))
    _, result = gf.load_run(gf.save_run(tmp_path / "run", gf.train(graph, mu=1e-2), graph))
    with pytest.raises(gf.InputError, match="node 5 is not in the graph"):
        result.row(5)


def test_a_run_can_be_moved_and_saved_again(run: Path, trained: gf.Trained, graph: gf.Graph, tmp_path: Path) -> None:
    moved = tmp_path / "elsewhere" / "moved"
    shutil.copytree(run, moved)
    shutil.rmtree(run)
    again = gf.save_run(tmp_path / "again", *gf.load_run(moved))
    assert_same_trained(gf.load_run(str(again))[0], trained, graph)
    assert tree(again) == tree(moved)


def test_run_json_tells_people_what_it_is(run: Path, trained: gf.Trained) -> None:
    content = json.loads((run / "run.json").read_text())
    assert content.pop("format") == 4
    assert content.pop("audience") == "private"
    assert bytes.fromhex(content.pop("graph_salt")) == trained.graph_salt
    assert content.pop("versions").keys() >= {"graphforget", "torch"}
    assert all(len(digest) == 64 for digest in content.pop("sha256").values())
    assert content == json.loads(json.dumps(trained.summary()))


# -- models and losses of one's own --------------------------------------------------------------------------


def test_an_own_module_has_to_be_handed_over_again(graph: gf.Graph, tmp_path: Path) -> None:
    torch.manual_seed(0)
    trained = gf.train(graph, OwnGCN(), **SHORT)
    run = gf.save_run(tmp_path / "run", trained, graph)
    with pytest.raises(gf.InputError, match=r"^this model is a cases\.OwnGCN, give an instance of it as model="):
        gf.load_run(run)
    given = OwnGCN()
    before = {name: value.clone() for name, value in given.state_dict().items()}
    result, found_graph = gf.load_run(run, model=given)
    assert_same_trained(result, trained, found_graph)
    assert all(torch.equal(given.state_dict()[name], value) for name, value in before.items())
    assert given.training


@pytest.mark.slow
@pytest.mark.parametrize("wrong", [OwnAPPNP, lambda: nn.Linear(COLUMNS, 2)], ids=["another model", "another size"])
def test_an_own_module_of_the_wrong_size_is_refused(
    wrong: Callable[[], nn.Module], graph: gf.Graph, tmp_path: Path
) -> None:
    trained = gf.train(graph, OwnGCN(), **SHORT)
    run = gf.save_run(tmp_path / "run", trained, graph)
    size = sum(p.numel() for p in wrong().parameters())
    expected = f"^the weights have {trained.theta.numel()} parameters, the model has {size}$"
    with pytest.raises(gf.InputError, match=expected):
        gf.load_run(run, model=wrong())


def test_what_is_not_in_theta_survives_too(graph: gf.Graph, tmp_path: Path) -> None:
    torch.manual_seed(0)
    own = OwnNorm()
    with torch.no_grad():
        own.frozen.copy_(torch.tensor([1.0, -2.0, 0.5]))
        own.get_buffer("shift").copy_(torch.tensor([3.0, 0.0, -1.0]))
    trained = gf.train(graph, own, epochs=5, polish_steps=2)
    result, _ = gf.load_run(gf.save_run(tmp_path / "run", trained, graph), model=OwnNorm())
    before, after = (dict(model.module.named_buffers()) for model in (trained, result))
    assert not torch.allclose(after["norm.running_mean"], torch.zeros(5, dtype=torch.float64), atol=1e-4)
    assert torch.equal(after["norm.running_var"], before["norm.running_var"])
    assert torch.equal(after["norm.num_batches_tracked"], before["norm.num_batches_tracked"])
    assert_same_trained(result, trained, graph)
    assert any("norm" in obstacle for obstacle in result.certification_blockers)


@pytest.mark.parametrize("sparse", [False, True], ids=["dense", "sparse"])
def test_running_statistics_see_the_training_graph_and_nothing_else(sparse: bool) -> None:
    trained = gf.train(random_graph(0, sparse=sparse), OwnNorm(), epochs=5, polish_steps=2)
    assert int(trained.module.get_buffer("norm.num_batches_tracked")) == 5


def test_an_own_loss_has_to_be_handed_over_again(graph: gf.Graph, tmp_path: Path) -> None:
    trained = gf.train(graph, "sgc", loss=squared, **SHORT)
    run = gf.save_run(tmp_path / "run", trained, graph)
    for wrong in (None, gf.Loss(squared, name="cubed")):
        with pytest.raises(gf.InputError, match=r"^this model was trained with the loss 'squared', give it as loss="):
            gf.load_run(run, loss=wrong)
    for right in (squared, gf.Loss(squared), gf.Loss(squared, name="squared")):
        result, _ = gf.load_run(run, loss=right)
        assert_same_trained(result, trained, graph)


def test_a_loss_that_was_not_used_is_refused(run: Path) -> None:
    with pytest.raises(gf.InputError, match="trained with the loss 'cross_entropy'"):
        gf.load_run(run, loss=squared)


# -- safe formats --------------------------------------------------------------------------------------------


def test_no_pickle_is_written_or_read(
    graph: gf.Graph, trained: gf.Trained, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def forbidden(*_: Any, **__: Any) -> None:
        raise AssertionError("pickle was used")

    for place, name in (
        (torch, "save"),
        (torch, "load"),
        *((pickle, n) for n in ("dump", "dumps", "load", "loads")),
    ):
        monkeypatch.setattr(place, name, forbidden)
    run = gf.save_run(tmp_path / "run", trained, graph)
    assert set(os.listdir(run)) == FILES
    for path in run.iterdir():
        if path.suffix == ".json":
            json.loads(path.read_text())
        else:
            assert load_file(path)
    assert torch.equal(gf.load_run(run)[0].theta, trained.theta)


# -- places that exist ---------------------------------------------------------------------------------------


def test_folders_above_are_made(trained: gf.Trained, graph: gf.Graph, tmp_path: Path) -> None:
    gf.save_run(tmp_path / "a" / "b" / "run", trained, graph)
    assert set(os.listdir(tmp_path / "a" / "b")) == {"run"}
    assert os.access(tmp_path / "a" / "b" / "run", os.R_OK | os.X_OK)


def test_an_existing_run_is_kept_unless_forced(run: Path, graph: gf.Graph, tmp_path: Path) -> None:
    before = tree(tmp_path)
    other = random_graph(5, sparse=False)
    retrained = gf.train(other, "sign", mu=1e-2)
    with pytest.raises(
        gf.InputError, match=f"^{run} exists already, choose another place or overwrite it with --force"
    ):
        gf.save_run(run, retrained, other)
    assert tree(tmp_path) == before
    (run / "note.txt").write_text("old")
    with pytest.raises(gf.InputError, match=r"holds 'note\.txt', which is not the run's own"):
        gf.save_run(run, retrained, other, force=True)
    (run / "note.txt").unlink()
    gf.save_run(run, retrained, other, force=True)
    assert os.listdir(tmp_path) == ["run"]
    assert set(os.listdir(run)) == FILES
    result, found_graph = gf.load_run(run)
    assert_same_graph(found_graph, other)
    assert_same_trained(result, retrained, other)


@pytest.mark.parametrize("force", [False, True], ids=["plain", "force"])
@pytest.mark.parametrize("kind", ["empty folder", "folder", "file"])
def test_what_is_no_run_directory_is_never_overwritten(
    kind: str, force: bool, trained: gf.Trained, graph: gf.Graph, tmp_path: Path
) -> None:
    place = tmp_path / "thesis"
    if kind == "file":
        place.write_text("ten years of work")
    else:
        place.mkdir()
    if kind == "folder":
        (place / "chapter.txt").write_text("ten years of work")
    before = tree(tmp_path)
    message = "is not a run directory and is not overwritten" if force else "exists already"
    with pytest.raises(gf.InputError, match=message):
        gf.save_run(place, trained, graph, force=force)
    assert tree(tmp_path) == before


def test_a_file_cannot_hold_a_run(trained: gf.Trained, graph: gf.Graph, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("text")
    with pytest.raises(gf.InputError, match="is not a folder that can be written to"):
        gf.save_run(tmp_path / "file" / "run", trained, graph)
    assert os.listdir(tmp_path) == ["file"]


def test_a_graph_that_the_model_was_not_trained_on_is_refused(
    trained: gf.Trained, graph: gf.Graph, tmp_path: Path
) -> None:
    with pytest.raises(gf.InputError, match=r"^the graph is not the one that this model was trained on$"):
        gf.save_run(tmp_path / "run", trained, graph.without(gf.Request(attributes={0: "all"})))
    assert not any(tmp_path.iterdir())


# -- crashes -------------------------------------------------------------------------------------------------


class Crash(BaseException):
    """Not an `Exception`, as a keyboard interrupt is not."""


def crash_at(call: int, function: Callable[..., Any]) -> Callable[..., Any]:
    calls = iter(range(1, 100))

    def wrapped(*args: Any, **named: Any) -> Any:
        if next(calls) == call:
            raise Crash
        return function(*args, **named)

    return wrapped


@pytest.mark.slow
@pytest.mark.parametrize("old", [False, True], ids=["new place", "forced"])
@pytest.mark.parametrize(
    ("place", "name", "call"),
    [
        *((write, "save_file", 1), (write, "save_file", 2), (write, "versions", 1), (os, "fsync", 4)),
        *(
            (Path, "write_text", 1),
            (Path, "write_text", 2),
            (Path, "chmod", 1),
            (Path, "rename", 1),
            (Path, "rename", 2),
        ),
    ],
)
def test_a_crash_leaves_the_old_state_and_nothing_else(
    place: Any,
    name: str,
    call: int,
    old: bool,
    trained: gf.Trained,
    graph: gf.Graph,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if (name, call, old) == ("rename", 2, False):
        call = 1  # a new place takes one renaming
    if old:
        gf.save_run(tmp_path / "run", trained, graph)
    before = tree(tmp_path)
    other = random_graph(5)
    retrained = gf.train(other, mu=1e-2)
    with monkeypatch.context() as patch:
        patch.setattr(place, name, crash_at(call, getattr(place, name)))
        with pytest.raises(Crash):
            gf.save_run(tmp_path / "run", retrained, other, force=True)
    assert tree(tmp_path) == before
    gf.save_run(tmp_path / "run", retrained, other, force=True)
    assert gf.load_run(tmp_path / "run")[1].digest == other.digest


# -- damage --------------------------------------------------------------------------------------------------

Damage = Callable[[Path], object]


def edited(file: str, **changes: Any) -> Damage:
    """Fields of a JSON file; a dictionary changes the fields of a field, and `...` takes one out."""

    def damage(run: Path) -> None:
        content = json.loads((run / file).read_text())
        for name, value in changes.items():
            content[name] = content[name] | value if isinstance(value, dict) else value
        (run / file).write_text(json.dumps({name: value for name, value in content.items() if value is not ...}))

    return damage


def retouched(file: str, name: str, change: Callable[[Tensor], Tensor] | None) -> Damage:
    """One tensor of a safetensors file; None takes it out."""

    def damage(run: Path) -> None:
        tensors = load_file(run / file)
        tensor = tensors.pop(name)
        if change is not None:
            tensors[name] = change(tensor).clone(memory_format=torch.contiguous_format)
        save_file(tensors or {"nothing": torch.zeros(1)}, run / file)

    return damage


def another_graph(run: Path, *, files: tuple[str, ...]) -> None:
    other = random_graph(8, nodes=13)
    gf.save_run(run.with_name("other"), gf.train(other, mu=1e-2), other)
    for file in files:
        shutil.copy(run.with_name("other") / file, run / file)
    shutil.rmtree(run.with_name("other"))


def on_file(file: str, change: Callable[[Path], object]) -> Damage:
    return lambda run: change(run / file)


DAMAGES: dict[str, Damage] = {
    **{f"{file} missing": on_file(file, Path.unlink) for file in sorted(FILES)},
    **{f"{file} truncated": on_file(file, lambda path: os.truncate(path, 40)) for file in sorted(FILES)},
    **{f"{file} empty": on_file(file, lambda path: os.truncate(path, 0)) for file in sorted(FILES)},
    **{f"{file} noise": on_file(file, lambda path: path.write_bytes(b"\xff\x00" * 50)) for file in sorted(FILES)},
    **{f"{file} a list": on_file(file, lambda path: path.write_text("[]")) for file in ("run.json", "graph.json")},
    "weights cut in the middle": lambda run: os.truncate(run / "weights.safetensors", 150),
    "graph cut at the end": lambda run: os.truncate(
        run / "graph.safetensors", (run / "graph.safetensors").stat().st_size - 1
    ),
    "no format": edited("run.json", format=...),
    "an earlier format": edited("run.json", format=2),
    "a later format": edited("run.json", format=5),
    "the format before this one, with a digest of this one": edited("run.json", format=3),
    "a format in words": edited("run.json", format="4"),
    "no recipe": edited("run.json", recipe=...),
    "an unknown field in the recipe": edited("run.json", recipe={"colour": "red"}),
    "a seed in words": edited("run.json", recipe={"seed": "zero"}),
    "another model": edited("run.json", recipe={"model": "sign"}),
    "an unknown model": edited("run.json", recipe={"model": "transformer"}),
    "an unknown option": edited("run.json", recipe={"options": {"colour": "red"}}),
    "another loss": edited("run.json", recipe={"loss": "hinge"}),
    "no reach": edited("run.json", reach=...),
    "an unknown reach": edited("run.json", reach={"miles": 3}),
    "no obstacles": edited("run.json", certification_blockers=None),
    "another graph's digest": edited("run.json", graph_digest="0" * 64),
    "no subject ids field": edited("graph.json", subject_ids=...),
    "too few subject ids": edited("graph.json", subject_ids=["ann"]),
    "subject ids added": edited("graph.json", subject_ids=[f"n{row}" for row in range(12)]),
    "subject ids a number": edited("graph.json", subject_ids=3),
    "column names added": edited("graph.json", column_names=["a", "b", "c", "d"]),
    "directed": edited("graph.json", directed=True),
    "more classes": edited("graph.json", num_classes=4),
    "classes in words": edited("graph.json", num_classes="three"),
    "fewer columns": edited("graph.json", num_columns=2),
    "columns in words": edited("graph.json", num_columns="four"),
    "no theta": retouched("weights.safetensors", "theta", None),
    "theta too short": retouched("weights.safetensors", "theta", lambda theta: theta[:-1]),
    "theta too long": retouched("weights.safetensors", "theta", lambda theta: theta.repeat(2)),
    "no labels": retouched("graph.safetensors", "y", None),
    "a label changed": retouched("graph.safetensors", "y", lambda y: y.roll(1)),
    "a label lost": retouched("graph.safetensors", "y", lambda y: y[1:]),
    "a mask lost": retouched("graph.safetensors", "val_mask", lambda mask: mask[1:]),
    "a training node more": retouched("graph.safetensors", "train_mask", torch.ones_like),
    "an edge lost": retouched("graph.safetensors", "edge_index", lambda edges: edges[:, 1:]),
    "edges to nowhere": retouched("graph.safetensors", "edge_index", lambda edges: edges + 1000),
    "edges in one row": retouched("graph.safetensors", "edge_index", lambda edges: edges[0]),
    "a number changed": retouched("graph.safetensors", "numbers", lambda numbers: numbers + 1),
    "an attribute changed": retouched("graph.safetensors", "x.values", lambda values: values * (1 + 1e-15)),
    "a column changed": retouched("graph.safetensors", "x.columns", lambda columns: (columns + 1) % COLUMNS),
    "columns out of range": retouched("graph.safetensors", "x.columns", lambda columns: columns + 10**6),
    "rows out of order": retouched("graph.safetensors", "x.crow", lambda crow: crow.flip(0)),
    "rows past the end": retouched("graph.safetensors", "x.crow", lambda crow: crow * 100),
    "no rows": retouched("graph.safetensors", "x.crow", lambda crow: crow[:0]),
    "no values": retouched("graph.safetensors", "x.values", None),
    "graph swapped": lambda run: another_graph(run, files=("graph.safetensors", "graph.json")),
    "tensors of another graph": lambda run: another_graph(run, files=("graph.safetensors",)),
    "run of another graph": lambda run: another_graph(run, files=("run.json", "weights.safetensors")),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_damage_is_told_in_one_sentence(damage: str, run: Path) -> None:
    DAMAGES[damage](run)
    before = tree(run)
    with pytest.raises(gf.InputError) as caught:
        gf.load_run(run)
    assert "\n" not in str(caught.value)
    assert tree(run) == before


@pytest.mark.parametrize("file", sorted(FILES))
def test_a_missing_file_is_named(file: str, run: Path) -> None:
    (run / file).unlink()
    problem = "is not a run directory" if file == "run.json" else "is damaged"
    with pytest.raises(gf.InputError, match=rf"^{run} {problem}: .*{file} is missing$"):
        gf.load_run(run)


@pytest.mark.parametrize("other", [1, 2, 5])
def test_an_earlier_or_later_format_is_named(other: int, run: Path) -> None:
    edited("run.json", format=other)(run)
    with pytest.raises(gf.InputError, match=f"^{run} has format {other}, this version reads format 4$"):
        gf.load_run(run)


def test_a_swapped_graph_is_named(run: Path) -> None:
    retouched("graph.safetensors", "y", lambda y: y.roll(1))(run)
    with pytest.raises(gf.InputError, match="graph.safetensors is not the file that was written"):
        gf.load_run(run)


@pytest.mark.parametrize("place", ["missing", "empty", "file"])
def test_places_that_hold_no_run(place: str, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "file").write_text("text")
    with pytest.raises(gf.InputError, match=f"^{tmp_path / place} "):
        gf.load_run(tmp_path / place)


def test_changed_weights_are_noticed(run: Path) -> None:
    retouched("weights.safetensors", "theta", lambda theta: theta + 1e-12)(run)
    with pytest.raises(gf.InputError, match="weights.safetensors is not the file that was written"):
        gf.load_run(run)


@pytest.mark.slow
def test_another_public_seed_is_noticed(tmp_path: Path) -> None:
    graph = random_graph(0, nodes=30, edges=40)
    trained = gf.train(graph, gf.linearised(OwnGCN(), seed=0, columns=graph.num_columns))
    gf.save_run(tmp_path / "run", trained, graph)
    same = gf.linearised(OwnGCN(), seed=0, columns=graph.num_columns)
    assert torch.equal(gf.load_run(tmp_path / "run", model=same)[0].theta, trained.theta)
    with pytest.raises(gf.InputError, match="the given model or loss is not the one of the training"):
        gf.load_run(tmp_path / "run", model=gf.linearised(OwnGCN(), seed=1, columns=graph.num_columns))


def test_a_process_killed_between_the_two_renames_leaves_the_old_state(run: Path) -> None:
    theta = gf.load_run(run)[0].theta
    old = run.with_name(f".{run.name}.graphforget-old")
    run.rename(old)
    assert torch.equal(gf.load_run(run)[0].theta, theta)
    with pytest.raises(gf.InputError, match="exists already"):
        gf.save_run(run, *gf.load_run(run))
    gf.save_run(run, *gf.load_run(run), force=True)
    assert torch.equal(gf.load_run(run)[0].theta, theta)
    assert not old.exists()


def test_what_killed_writers_left_is_removed_and_nothing_else(run: Path) -> None:
    dead = run.with_name(f".{run.name}.graphforget-4000000-abc")
    others = [run.with_name(f".{run.name}.{rest}") for rest in ("2024.bak", "20240101123456.old", "5.graphforget-old")]
    for folder in (dead, *others):
        folder.mkdir()
    gf.save_run(run, *gf.load_run(run), force=True)
    assert not dead.exists()
    assert all(folder.exists() for folder in others)


# -- outcomes --------------------------------------------------------------------------------------------------------

OUTCOME_FILES = {"certificate.json", "released.safetensors", "outcome.json", "annex.json", "ledger.sqlite"}
OUTCOME_FILES |= {"suppressed.json"}


def asked(graph: gf.Graph, row: int = 5) -> gf.Request:
    return gf.Request(nodes=[int(graph.numbers[row])])


@pytest.fixture
def after(tmp_path: Path, trained: gf.Trained, graph: gf.Graph) -> Path:
    """The run directory of a model that has forgotten a node."""
    return gf.save_outcome(tmp_path / "one", gf.unlearn(trained, graph, asked(graph)), request_id="first")


def test_an_outcome_is_kept_with_its_history_claim_and_released_weights(
    trained: gf.Trained, graph: gf.Graph, tmp_path: Path
) -> None:
    first = idea(trained, graph, asked(graph), audit=False, level="empirical")
    run = gf.save_outcome(tmp_path / "one", first)
    loaded, retained = gf.load_run(run)
    assert loaded.history == first.trained.history
    assert torch.equal(loaded.theta, first.trained.theta)
    assert retained.digest == first.graph.digest
    assert json.loads((run / "outcome.json").read_text()) == json.loads(json.dumps(first.public()))
    (annex,) = json.loads((run / "annex.json").read_text())["annexes"]
    assert annex["account"] == json.loads(json.dumps(first.private()))
    released = load_file(run / "released.safetensors")["theta"]
    assert torch.equal(released, first.released_theta)
    assert not torch.equal(released, loaded.theta)
    public, public_graph = gf.load_released(run)
    assert public_graph.digest == retained.digest
    assert torch.equal(public.theta, first.released_theta)
    assert public.noise == first.certificate.sigma == trained.recipe.sigma
    assert public.gradient_norm == pytest.approx(first.released.gradient_norm)
    node = int(retained.numbers[retained.train_rows[-1]])
    with pytest.raises(gf.InputError, match="^these are released weights"):
        gf.unlearn(public, retained, gf.Request(nodes=[node]))
    second = idea(loaded, retained, gf.Request(nodes=[node]), audit=False, level="empirical")
    assert len(second.trained.history) == 2
    assert second.measured["distance"] > first.measured["distance"]


def test_a_run_that_came_of_a_deletion_has_these_files_and_no_others(after: Path) -> None:
    assert set(os.listdir(after)) == FILES | OUTCOME_FILES
    assert {path.name for path in after.iterdir() if path.stat().st_mode & 0o077} == set()
    assert os.listdir(after.parent) == ["one"]


def test_the_certificate_of_an_outcome_is_kept_as_it_is(trained: gf.Trained, graph: gf.Graph, tmp_path: Path) -> None:
    outcome = gf.unlearn(trained, graph, asked(graph))
    run = gf.save_outcome(tmp_path / "one", outcome, request_id="first")
    kept = gf.Certificate.read(run / "certificate.json")
    assert kept.to_dict() == outcome.certificate.to_dict()
    assert (kept.level, kept.signature, kept.follows) == ("certified", None, "0" * 64)
    annexes = json.loads((run / "annex.json").read_text())
    assert (set(annexes), annexes["audience"]) == ({"audience", "annexes"}, "private")
    assert [Annex.from_dict(content) for content in annexes["annexes"]] == [outcome.annex]
    (entry,) = read_history(run).entries
    assert (entry.number, entry.request_id, entry.level) == (1, "first", "certified")
    assert entry.certificate_digest == kept.digest
    assert gf.verify_run(run).checks


def test_no_file_of_an_outcome_but_the_graph_names_anybody(tmp_path: Path) -> None:
    plain = random_graph(0)
    ids = [f"subject-{row:02d}-of-the-study" for row in range(plain.num_nodes)]
    graph = gf.Graph.create(x=plain.x, edges=plain.edge_index, y=plain.y, num_classes=CLASSES, subject_ids=ids)
    trained = gf.train(graph, mu=1e-2)
    run = gf.save_outcome(tmp_path / "one", gf.unlearn(trained, graph, gf.Request(nodes=[ids[5]])))
    content = {path.name: path.read_bytes() for path in run.iterdir()}
    assert {name for name, result in content.items() if b"of-the-study" in result} == {"graph.json"}
    assert ids[5].encode() not in content["graph.json"]


def test_a_ledger_goes_on_where_the_run_before_it_ended(after: Path, tmp_path: Path) -> None:
    trained, graph = gf.load_run(after)
    before = tree(after)
    private, public = gf.make_keys(tmp_path / "key")
    outcome = gf.unlearn(trained, graph, asked(graph))
    run = gf.save_outcome(tmp_path / "two", outcome, after=after, key=gf.private_key(private), request_id="second")
    first, second = read_history(run).entries
    assert (first,) == read_history(after).entries
    assert (second.request_id, second.previous) == ("second", first.hash)
    certificate = gf.Certificate.read(run / "certificate.json")
    assert certificate.follows == first.hash
    assert certificate.signature is not None
    assert len(read_history(run).annexes) == 2
    assert gf.verify_run(run, key=gf.public_key(public)).checks[0].name == "signature"
    assert gf.releases_so_far(run, delta=1e-5).releases == 2
    assert tree(after) == before


def test_an_outcome_without_an_id_gets_one_of_its_own(trained: gf.Trained, graph: gf.Graph, tmp_path: Path) -> None:
    outcome = gf.unlearn(trained, graph, asked(graph))
    runs = [gf.save_outcome(tmp_path / name, outcome) for name in ("one", "two")]
    ids = [read_history(run).entries[0].request_id for run in runs]
    assert len(set(ids)) == 2
    assert all(len(request_id) == 36 for request_id in ids)


@pytest.mark.parametrize(
    ("request_id", "message"), [("first", "in the ledger already"), (" ", "the request id is blank")]
)
def test_an_id_that_cannot_be_used_writes_nothing(request_id: str, message: str, after: Path, tmp_path: Path) -> None:
    trained, graph = gf.load_run(after)
    outcome = gf.unlearn(trained, graph, asked(graph))
    before = tree(tmp_path)
    with pytest.raises(gf.InputError, match=message):
        gf.save_outcome(tmp_path / "two", outcome, after=after, request_id=request_id)
    assert tree(tmp_path) == before


def test_an_outcome_takes_no_other_run_s_place_unless_forced(after: Path, tmp_path: Path) -> None:
    trained, graph = gf.load_run(after)
    outcome = gf.unlearn(trained, graph, asked(graph))
    before = tree(tmp_path)
    with pytest.raises(gf.InputError, match=f"^{after} exists already"):
        gf.save_outcome(after, outcome, after=after)
    assert tree(tmp_path) == before
    gf.save_outcome(after, outcome, after=after, force=True)
    assert gf.load_run(after)[1].digest == outcome.graph.digest
    assert len(read_history(after).entries) == 2
    assert os.listdir(tmp_path) == ["one"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("place", "name", "call"),
    [
        (save, "save_bytes", 1),
        (Ledger, "append", 1),
        (Path, "write_bytes", 3),
        (os, "fsync", 9),
        (Path, "rename", 2),
    ],
)
def test_a_crash_while_an_outcome_is_written_leaves_the_run_as_it_was(
    place: Any, name: str, call: int, after: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, graph = gf.load_run(after)
    before = tree(tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(place, name, crash_at(call, getattr(place, name)))
        with pytest.raises(Crash):
            gf.answer(after, asked(graph), request_id="second")
    assert tree(tmp_path) == before
    assert not gf.answer(after, asked(graph), request_id="second").repeated
    assert [entry.request_id for entry in read_history(after).entries] == ["first", "second"]


def test_a_run_that_came_of_no_deletion_has_nothing_released(run: Path) -> None:
    with pytest.raises(gf.InputError, match="holds no released weights: it has not answered any request$"):
        gf.load_released(run)
    with pytest.raises(gf.InputError, match=f"^{run} holds no certificate: it has not answered any request$"):
        gf.verify_run(run)
    assert read_history(run) == History((), ())


@pytest.mark.parametrize("entry", [{"step_norm": "a"}, {"step_norm": -1.0}, {"removed": -1}, {"m": 1.5}])
def test_a_history_that_cannot_be_is_noticed(entry: dict[str, Any], after: Path) -> None:
    content = json.loads((after / "run.json").read_text())
    content["history"][0] |= entry
    (after / "run.json").write_text(json.dumps(content))
    with pytest.raises(gf.InputError, match=f"{next(iter(entry))} in the history is "):
        gf.load_run(after)


def test_what_a_killed_writer_left_goes_when_the_run_is_read(run: Path) -> None:
    old = run.with_name(f".{run.name}.graphforget-old")
    shutil.copytree(run, old)
    gf.load_run(run)
    assert not old.exists()


@pytest.mark.parametrize("file", sorted(OUTCOME_FILES - {"ledger.sqlite"}))
def test_a_changed_or_missing_part_of_an_outcome_is_noticed(file: str, after: Path) -> None:
    (after / file).write_bytes((after / file).read_bytes() + b" ")
    with pytest.raises(gf.InputError, match=f"is damaged: {file} is not the file that was written"):
        gf.load_run(after)
    (after / file).unlink()
    with pytest.raises(gf.InputError, match=f"is damaged.*{file}"):
        gf.load_run(after)


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda path: path.unlink(), "the ledger of .* is missing"),
        (lambda path: path.write_bytes(b"not a database"), "cannot be used as a ledger"),
    ],
    ids=["missing", "no database"],
)
def test_a_damaged_ledger_is_a_mismatch(damage: Damage, message: str, after: Path) -> None:
    damage(after / "ledger.sqlite")
    with pytest.raises(gf.Mismatch, match=message) as caught:
        gf.verify_run(after)
    assert "\n" not in str(caught.value)


def spoilt(file: str, name: str, change: Callable[[Tensor], Tensor]) -> Damage:
    """A tensor changed so that no checksum gives it away."""

    def damage(run: Path) -> None:
        retouched(file, name, change)(run)
        rewrite_checksums(run)

    return damage


@pytest.mark.parametrize("by", [1e-9, 1e-3, 3.0])
def test_weights_that_changed_together_with_their_checksum_are_a_mismatch(by: float, after: Path) -> None:
    spoilt("weights.safetensors", "theta", lambda theta: theta + by)(after)
    with pytest.raises(gf.Mismatch, match="the weights|is inconsistent"):
        gf.verify_run(after)


def test_an_undirected_graph_with_an_edge_that_goes_one_way_only_is_damaged(after: Path) -> None:
    """Gradients take messages to weigh the same both ways there, so a certificate would speak of another objective."""
    spoilt("graph.safetensors", "edge_index", lambda edges: edges[:, 1:])(after)
    with pytest.raises(gf.Mismatch, match="an edge that goes one way only"):
        gf.verify_run(after)
