"""Large graphs are stored as arrays that are mapped, and what is forgotten is overwritten in the files."""

from __future__ import annotations

import gc
import json
import os
import pickle
import shutil
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import graphforget as gf
from array_cases import (
    ALTERED,
    GONE,
    NODES,
    SECRET,
    SLOT,
    holds_planted,
    in_child,
    planted_graph,
    planted_request,
    same_graph,
)
from graphforget.runs import arrays, mapped_files
from graphforget.runs.journal import JOURNAL, Write, write_journal
from graphforget.runs.layout import ARRAY_FILES, ARRAYS, recover
from graphforget.runs.write import rewrite_checksums

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture(scope="module")
def trained() -> tuple[gf.Trained, gf.Graph]:
    graph = planted_graph()
    return gf.train(graph, "sgc", mu=1e-2), graph


@pytest.fixture
def run(trained: tuple[gf.Trained, gf.Graph], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A run directory whose graph counts as large."""
    monkeypatch.setattr(arrays, "LARGE", 1000)
    monkeypatch.setattr(mapped_files, "PATIENCE", 0.2)
    return gf.save_run(tmp_path / "runs" / "run", *trained)


def content(run: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in run.iterdir()}


def test_a_large_graph_is_read_as_it_was_saved_without_its_records(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise AssertionError("records are hashed")

    monkeypatch.setattr("graphforget.graph.digest.record_hashes", fail)
    _, graph = gf.load_run(run)
    monkeypatch.undo()
    assert not (run / "graph.safetensors").exists()
    assert same_graph(graph, planted_graph())
    assert same_graph(pickle.loads(pickle.dumps(graph)), planted_graph())


def test_a_small_graph_is_stored_as_before(trained: tuple[gf.Trained, gf.Graph], tmp_path: Path) -> None:
    gf.save_run(tmp_path / "run", *trained)
    assert {path.suffix for path in (tmp_path / "run").iterdir()} == {".json", ".safetensors"}


@pytest.mark.parametrize("kind", ["labels", "values", "no names"])
def test_other_targets_are_read_as_they_were_saved(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arrays, "LARGE", 0)
    graph = gf.synthetic(nodes=60, edges=150, columns=3, classes=3)
    y = {"labels": torch.nn.functional.one_hot(graph.y, 3), "values": graph.y.double() / 3, "no names": graph.y}[kind]
    graph = gf.Graph.create(x=graph.x.double(), edges=graph.edge_index, y=y, train_mask=graph.train_mask)
    gf.save_run(tmp_path / "run", gf.train(graph, "sgc", mu=1e-2), graph)
    assert same_graph(gf.load_run(tmp_path / "run")[1], graph)
    answer = gf.answer(tmp_path / "run", gf.Request(nodes=[5, 0, 59]))
    assert answer.outcome is not None
    assert same_graph(gf.load_run(tmp_path / "run")[1], answer.outcome.graph)
    gf.verify_run(tmp_path / "run")


def test_an_answer_in_place_changes_the_files_and_leaves_nothing_of_what_was_deleted(run: Path) -> None:
    file = (run / "attributes.bin").stat().st_ino
    _, before = gf.load_run(run)
    assert {"attributes.bin", "subjects.bin"} <= set(holds_planted(run))
    neighbours = before.edge_index[0, before.edge_index[1] == GONE]
    assert neighbours.numel()
    request = planted_request(before)
    answer = gf.answer(run, request)
    assert answer.outcome is not None
    assert (run / "attributes.bin").stat().st_ino == file
    assert holds_planted(run.parent) == []
    assert os.listdir(run.parent) == ["run"]
    assert not (run / JOURNAL).exists()
    _, after = gf.load_run(run)
    assert same_graph(after, planted_graph().without(request))
    assert same_graph(after, answer.outcome.graph)
    indices, indptr = (
        np.fromfile(run / f"{name}.bin", dtype=kind) for name, kind in (("indices", "<i4"), ("indptr", "<i8"))
    )
    assert SLOT not in indices
    assert indptr[SLOT] == indptr[SLOT + 1]
    gf.verify_run(run)


def test_the_files_do_not_tell_which_edge_was_deleted(run: Path) -> None:
    """They are those of a graph that never had it: a gap in two lists of neighbours would name both ends."""
    _, graph = gf.load_run(run)
    names = graph.subject_ids or ()
    source, target = (names[row] for row in graph.edge_index[:, 10].tolist())
    gf.answer(run, gf.Request(edges=[(source, target)]))
    never = planted_graph().without(gf.Request(edges=[(source, target)]))
    gf.save_run(run.parent / "never", gf.train(never, "sgc", mu=1e-2), never)
    for name in (ARRAYS, *ARRAY_FILES):
        assert (run / name).read_bytes() == (run.parent / "never" / name).read_bytes(), name


def test_the_files_do_not_tell_how_many_neighbours_or_letters_a_deleted_node_had(run: Path) -> None:
    _, graph = gf.load_run(run)
    gf.answer(run, gf.Request(nodes=[SECRET, "s3"]))
    retained = graph.without(gf.Request(nodes=[SECRET, "s3"]))
    indptr, counts, indices = (
        np.fromfile(run / f"{name}.bin", dtype=kind)
        for name, kind in (("indptr", "<i8"), ("counts", "<i4"), ("indices", "<i4"))
    )
    stays = np.delete(np.arange(NODES), [3, SLOT])
    expected = np.zeros(NODES, dtype=np.int64)
    expected[stays] = np.bincount(retained.edge_index[1], minlength=NODES - 2)
    assert (np.diff(indptr) == expected).all()
    assert (counts == expected).all()
    assert indices.min() >= 0
    assert (run / "subjects.bin").read_bytes().decode() == "".join(retained.subject_ids or ())
    ends = np.fromfile(run / "subject_ends.bin", dtype="<i8")
    assert (np.diff(ends, prepend=0)[[3, SLOT]] == 0).all()


def test_gaps_that_an_earlier_version_left_are_read_and_close_with_the_next_request(run: Path) -> None:
    source, target = planted_graph().edge_index[:, 10].tolist()
    indices, indptr, counts = (
        np.fromfile(run / f"{name}.bin", dtype=kind)
        for name, kind in (("indices", "<i4"), ("indptr", "<i8"), ("counts", "<i4"))
    )
    request = gf.Request(edges=[(f"s{source}", f"s{target}")])
    lists = {path.name: path.read_bytes() for path in run.iterdir() if path.name in arrays.LISTS}
    gf.answer(run, request)
    for node, other in ((source, target), (target, source)):
        place = slice(indptr[node], indptr[node + 1])
        indices[place] = [*indices[place][indices[place] != other], -1]
        counts[node] -= 1
    (run / "indptr.bin").write_bytes(lists["indptr.bin"])
    (run / "indices.bin").write_bytes(indices.tobytes())
    (run / "counts.bin").write_bytes(counts.tobytes())
    header = json.loads((run / ARRAYS).read_text())
    header["indices.bin"]["shape"] = [indices.size]
    (run / ARRAYS).write_text(json.dumps(header, indent=2) + "\n")
    rewrite_checksums(run)
    retained = planted_graph().without(request)
    assert same_graph(gf.load_run(run)[1], retained)
    gf.verify_run(run)
    gf.answer(run, gf.Request(attributes={"s9": "all"}))
    assert same_graph(gf.load_run(run)[1], retained.without(gf.Request(attributes={"s9": "all"})))
    assert np.fromfile(run / "indices.bin", dtype="<i4").min() >= 0


def test_answers_follow_one_another_in_place(run: Path) -> None:
    file = (run / "attributes.bin").stat().st_ino
    expected = planted_graph()
    for row in (GONE, 3, NODES - 1, 0):
        request = gf.Request(nodes=[f"s{row}" if row != GONE else SECRET])
        expected = expected.without(request)
        gf.answer(run, request)
        assert same_graph(gf.load_run(run)[1], expected)
    assert (run / "attributes.bin").stat().st_ino == file
    assert len(gf.verify_run(run).checks)


def test_so_much_may_be_deleted_that_the_arrays_are_written_anew(run: Path) -> None:
    file = (run / "attributes.bin").stat().st_ino
    request = gf.Request(nodes=[SECRET, *(f"s{row}" for row in range(200, 350))])
    gf.answer(run, request)
    assert (run / "attributes.bin").stat().st_ino != file
    assert (run / "numbers.bin").stat().st_size == 8 * (NODES - 151)
    assert same_graph(gf.load_run(run)[1], planted_graph().without(request))
    assert os.listdir(run.parent) == ["run"]


def test_a_new_state_elsewhere_leaves_the_run_as_it_was(run: Path) -> None:
    before = content(run)
    request = planted_request(planted_graph())
    gf.answer(run, request, out=run.parent / "next")
    assert content(run) == before
    assert holds_planted(run.parent / "next") != holds_planted(run)
    assert holds_planted(run.parent / "next") == []
    assert same_graph(gf.load_run(run.parent / "next")[1], planted_graph().without(request))


def test_without_hard_links_the_arrays_are_written_anew(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    link = os.link

    def refuse(source: str | Path, *others: Any, **named: Any) -> None:
        if Path(source).name == "roles.bin":
            raise OSError("no links here")
        link(source, *others, **named)

    monkeypatch.setattr(os, "link", refuse)
    file = (run / "attributes.bin").stat().st_ino
    request = planted_request(planted_graph())
    gf.answer(run, request)
    assert (run / "attributes.bin").stat().st_ino != file
    assert holds_planted(run.parent) == []
    assert same_graph(gf.load_run(run)[1], planted_graph().without(request))


# -- what an open graph sees -----------------------------------------------------------------------------------------


def test_a_graph_that_is_open_in_this_process_stays_what_it_was(run: Path) -> None:
    _, earlier = gf.load_run(run)
    first = gf.answer(run, planted_request(earlier)).outcome
    assert first is not None
    second = gf.answer(run, gf.Request(nodes=["s5", "s300"], attributes={"s7": "all"})).outcome
    assert second is not None
    assert same_graph(earlier, planted_graph())
    assert same_graph(first.graph, planted_graph().without(planted_request(planted_graph())))
    assert same_graph(gf.load_run(run)[1], second.graph)


def test_an_earlier_state_is_not_written_over_a_later_one_in_place(run: Path) -> None:
    model, earlier = gf.load_run(run)
    outcome = gf.unlearn(model, earlier, gf.Request(nodes=["s9"]))
    gf.answer(run, planted_request(earlier))
    gf.save_outcome(run, outcome, force=True)
    assert same_graph(gf.load_run(run)[1], planted_graph().without(gf.Request(nodes=["s9"])))


@contextmanager
def forked(work: Callable[[Callable[[], None]], bool]) -> Iterator[Callable[[], bool]]:
    """Runs `work` in a forked process. It gets a function that waits for this process, which goes on meanwhile.

    Gives a function that ends the waiting, and returns what `work` returned.
    """
    ready, told = os.pipe()
    stop, ask = os.pipe()
    child = os.fork()
    if child == 0:

        def wait() -> None:
            os.write(told, b"1")
            os.read(stop, 1)

        try:
            os.write(told, b"1" if work(wait) else b"0")
        finally:
            os._exit(0)
    os.close(told)  # a child that fails has nothing to tell

    def finished() -> bool:
        os.write(ask, b"1")
        return os.read(ready, 1) == b"1"

    try:
        assert os.read(ready, 1) == b"1"
        yield finished
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


def test_a_run_that_another_process_has_open_is_not_changed_in_place(run: Path) -> None:
    request = planted_request(planted_graph())

    def read(wait: Callable[[], None]) -> bool:
        graph = gf.load_run(run)[1]
        wait()
        return same_graph(graph, planted_graph())

    with forked(read) as finished:
        before = content(run)
        with pytest.raises(gf.InputError, match="is open in another process, and nothing was changed"):
            gf.answer(run, request)
        assert content(run) == before
        assert os.listdir(run.parent) == ["run"]
        assert finished()
    gf.answer(run, request)
    assert holds_planted(run.parent) == []


@pytest.mark.parametrize("writer", ["parent", "child"])
def test_a_forked_process_is_another_process(run: Path, writer: str) -> None:
    """The arrays that were open before the fork are open in both: neither may overwrite them."""
    _, graph = gf.load_run(run)
    request = planted_request(planted_graph())

    def refused() -> None:
        with pytest.raises(gf.InputError, match="is open in another process, and nothing was changed"):
            gf.answer(run, request)

    def read(wait: Callable[[], None]) -> bool:
        wait()
        if writer == "child":
            refused()
        return same_graph(graph, planted_graph())

    with forked(read) as finished:
        if writer == "parent":
            refused()
        assert finished()
    assert same_graph(graph, planted_graph())
    gf.answer(run, request)
    assert holds_planted(run.parent) == []


def test_the_lock_ends_with_the_last_array_of_the_graph(run: Path) -> None:
    held = mapped_files.identity_of(run / "attributes.bin")
    x = gf.load_run(run)[1].x
    gc.collect()
    assert held in mapped_files._HELD
    assert float(x[ALTERED, 3]) > 1e5
    del x
    assert held not in mapped_files._HELD


# -- killed at any step ----------------------------------------------------------------------------------------------


def check_killed(run: Path, request: gf.Request, die_at: int) -> str:
    """Answers in a process that is killed at a step. The state is the old one or the new one, whole."""
    saved = run.parent.with_name("saved")
    shutil.copytree(run, saved)
    assert in_child(lambda: gf.answer(run, request), die_at=die_at) is None
    _, graph = gf.load_run(run)
    is_new = not same_graph(graph, planted_graph())
    if is_new:
        assert same_graph(graph, planted_graph().without(request))
        gf.verify_run(run)
        assert holds_planted(run.parent) == []
        assert not (run / JOURNAL).exists()
    else:
        recover(run)  # it may have been killed between two renames
        assert content(run) == content(saved)
        del graph
        gf.answer(run, request)
        assert holds_planted(run.parent) == []
    assert os.listdir(run.parent) == ["run"]
    shutil.rmtree(run.parent)
    shutil.copytree(saved, run)
    shutil.rmtree(saved)
    return "new" if is_new else "old"


def steps_of(run: Path, request: gf.Request) -> int:
    other = run.parent.with_name("count") / "run"
    shutil.copytree(run, other)
    steps = in_child(lambda: gf.answer(other, request))
    assert steps is not None
    return steps


def test_a_run_survives_a_kill_at_some_steps(run: Path) -> None:
    request = planted_request(planted_graph())
    steps = steps_of(run, request)
    states = [check_killed(run, request, step) for step in range(2, steps, steps // 5)]
    assert set(states) == {"old", "new"}
    assert states == sorted(states, reverse=True)


@pytest.mark.long
def test_a_run_survives_a_kill_at_every_step(run: Path) -> None:
    request = planted_request(planted_graph())
    states = [check_killed(run, request, step) for step in range(steps_of(run, request))]
    assert set(states) == {"old", "new"}
    assert states == sorted(states, reverse=True)


# -- files that are not as they were written -------------------------------------------------------------------------


def damage(path: Path, place: int, new: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(place)
        file.write(new)


@pytest.mark.parametrize(
    ("name", "place", "new"),
    [
        ("indices.bin", 40, np.int32(NODES).tobytes()),
        ("indices.bin", 40, np.int32(-1).tobytes()),
        ("indptr.bin", 8, np.int64(-5).tobytes()),
        ("indptr.bin", 8 * NODES, np.int64(2**40).tobytes()),
        ("counts.bin", 0, np.int32(2**30).tobytes()),
        ("counts.bin", 0, np.int32(1).tobytes()),
        ("numbers.bin", 16, np.int64(0).tobytes()),
        ("targets.bin", 0, np.int64(99).tobytes()),
        ("roles.bin", 0, b"\x09"),
        ("leaves.bin", 5, b"wrong"),
        ("subject_ends.bin", 0, np.int64(2**40).tobytes()),
        ("subjects.bin", 0, b"\xff\xfe"),
        ("arrays.json", 5, b"{"),
    ],
)
def test_damage_that_could_harm_is_seen_when_a_run_is_opened(run: Path, name: str, place: int, new: bytes) -> None:
    damage(run / name, place, new)
    with pytest.raises(gf.InputError, match="damaged"):
        gf.load_run(run)


@pytest.mark.parametrize("name", ["attributes.bin", "indices.bin", "leaves.bin"])
def test_a_file_of_another_size_or_kind_is_refused(run: Path, name: str) -> None:
    os.truncate(run / name, (run / name).stat().st_size - 4)
    with pytest.raises(gf.InputError, match=f"{name} has not the size"):
        gf.load_run(run)
    (run / name).unlink()
    with pytest.raises(gf.InputError, match="damaged"):
        gf.load_run(run)


def test_a_header_with_other_types_is_refused(run: Path) -> None:
    header = json.loads((run / "arrays.json").read_text())
    changes: tuple[dict[str, Any], ...] = (
        {"attributes.bin": {"dtype": "|O", "shape": [NODES, 6]}},
        {"attributes.bin": {"dtype": "<f4", "shape": [6, NODES]}},
        {"attributes.bin": 3},
        {"other.bin": {}},
    )
    for change in changes:
        (run / "arrays.json").write_text(json.dumps(header | change))
        rewrite_checksums(run)
        with pytest.raises(gf.InputError, match="damaged"):
            gf.load_run(run)


@pytest.mark.parametrize(("name", "place"), [("attributes.bin", 4), ("targets.bin", 8 * 20), ("roles.bin", 20)])
def test_verification_hashes_the_records(run: Path, name: str, place: int) -> None:
    gf.answer(run, planted_request(planted_graph()))
    old = (run / name).read_bytes()[place]
    damage(run / name, place, bytes([{0: 1, 1: 4, 4: 1, 2: 0}.get(old, old ^ 1)]))
    gf.load_run(run)
    with pytest.raises(gf.Mismatch, match="its graph is not the one that the model was trained on"):
        gf.verify_run(run)


def test_a_journal_that_is_not_as_it_was_written_changes_nothing(run: Path) -> None:
    one = np.ones(1, dtype=np.int64)
    before = content(run)
    for write in (
        Write("attributes.bin", one * 2**40, one, np.zeros(1, dtype=np.uint8)),
        Write("attributes.bin", one, one, np.zeros(9, dtype=np.uint8)),
        Write("run.json", one, one, np.zeros(1, dtype=np.uint8)),
    ):
        write_journal(run, [write])
        with pytest.raises(gf.InputError, match="is damaged: its journal"):
            gf.load_run(run)
        (run / JOURNAL).unlink()
    (run / JOURNAL).write_bytes(b"x" * 100)
    with pytest.raises(gf.InputError, match="journal is not the file that was written"):
        gf.load_run(run)
    (run / JOURNAL).unlink()
    assert content(run) == before
