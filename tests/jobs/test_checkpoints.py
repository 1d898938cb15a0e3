"""Checkpoints: pieces of long work are stored, read again, never mixed, and computed several at a time."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest

import graphforget as gf
from graphforget.jobs import checkpoints
from graphforget.jobs.checkpoints import IDENTITY, Checkpoint, Checkpoints

NAMES = ["one-0", "one-1", "two words"]


@dataclass
class Counted:
    """Remembers the pieces that it computed."""

    computed: list[str] = field(default_factory=list)

    def __call__(self, name: str) -> Checkpoint:
        self.computed.append(name)
        return {"letters": np.array([len(name)]), "a/0/in": np.linspace(0, 1, len(name))}


@dataclass(frozen=True)
class InAnyProcess:
    """Can travel, fails on one piece, and says which process it ran in."""

    bad: str = ""
    late: float = 0.0

    def __call__(self, name: str) -> Checkpoint:
        if name == self.bad:
            time.sleep(self.late)  # until the others are done
            raise gf.Refused(f"{name} cannot be computed")
        return {"letters": np.array([len(name)]), "process": np.array([os.getpid()])}


def compute_in(
    folder: Path, compute: Callable[[str], Checkpoint], *, jobs: int = 1, identity: str = "mine"
) -> list[Checkpoint]:
    return Checkpoints(folder, identity).compute(NAMES, compute, jobs=jobs, stage="work")


def files(folder: Path) -> set[str]:
    return {file.name for file in folder.iterdir()}


def test_pieces_come_in_order_and_as_they_were_computed(tmp_path: Path) -> None:
    pieces = compute_in(tmp_path / "new" / "folder", Counted())
    for name, piece in zip(NAMES, pieces, strict=True):
        assert set(piece) == {"letters", "a/0/in"}
        assert piece["letters"].tolist() == [len(name)]
        np.testing.assert_array_equal(piece["a/0/in"], np.linspace(0, 1, len(name)))
    assert files(tmp_path / "new" / "folder") == {IDENTITY, *(f"{name}.npz" for name in NAMES)}


def test_what_is_there_is_not_computed_again(tmp_path: Path) -> None:
    first = Counted()
    before = compute_in(tmp_path, first)
    assert first.computed == NAMES
    again = Counted()
    after = compute_in(tmp_path, again)
    assert again.computed == []
    for one, other in zip(before, after, strict=True):
        np.testing.assert_array_equal(one["a/0/in"], other["a/0/in"])
    (tmp_path / "one-1.npz").unlink()
    compute_in(tmp_path, again)
    assert again.computed == ["one-1"]


def test_a_stopped_run_goes_on_where_it_was(tmp_path: Path) -> None:
    with pytest.raises(gf.Refused, match="^one-1 cannot be computed$"):
        compute_in(tmp_path, InAnyProcess(bad="one-1"))
    assert files(tmp_path) == {IDENTITY, "one-0.npz"}
    rest = Counted()
    assert [piece["letters"][0] for piece in compute_in(tmp_path, rest)] == [len(name) for name in NAMES]
    assert rest.computed == ["one-1", "two words"]


def test_pieces_of_anything_else_are_refused(tmp_path: Path) -> None:
    compute_in(tmp_path, Counted())
    with pytest.raises(gf.InputError, match="holds checkpoints of another run, remove it or choose another folder$"):
        Checkpoints(tmp_path, "somebody else's")
    assert len(compute_in(tmp_path, Counted())) == 3


def test_a_folder_with_other_files_is_refused_and_left_alone(tmp_path: Path) -> None:
    (tmp_path / "letter.txt").write_text("dear")
    with pytest.raises(gf.InputError, match="holds other files, choose another folder$"):
        Checkpoints(tmp_path, "mine")
    assert files(tmp_path) == {"letter.txt"}


def test_a_crash_while_writing_leaves_nothing_that_looks_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    really = np.savez
    calls: list[int] = []

    def interrupted(file: object, **piece: np.ndarray) -> None:
        calls.append(1)
        if len(calls) == 2:
            file.write(b"half of it")  # type: ignore[attr-defined]
            raise OSError("no space left on device")
        really(file, **piece)  # type: ignore[arg-type]

    monkeypatch.setattr(np, "savez", interrupted)
    with pytest.raises(OSError, match="no space"):
        compute_in(tmp_path, Counted())
    assert {name for name in files(tmp_path) if name.endswith(".npz")} == {"one-0.npz"}
    rest = Counted()
    assert [piece["letters"][0] for piece in compute_in(tmp_path, rest)] == [len(name) for name in NAMES]
    assert rest.computed == ["one-1", "two words"]
    assert files(tmp_path) == {IDENTITY, *(f"{name}.npz" for name in NAMES)}


def test_a_crash_while_the_identity_is_written_leaves_a_folder_that_can_be_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(self: Path, text: str) -> None:
        self.touch()
        raise OSError("no space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(Path, "write_bytes", interrupted)
        with pytest.raises(gf.InputError, match="no space"):
            Checkpoints(tmp_path / "pieces", "mine")
    assert len(compute_in(tmp_path / "pieces", Counted())) == 3


def test_progress_counts_what_was_there_already(tmp_path: Path) -> None:
    reports: list[tuple[str, int, int]] = []
    with pytest.raises(gf.Refused):
        compute_in(tmp_path, InAnyProcess(bad="one-1"))
    work = Checkpoints(tmp_path, "mine")
    work.compute(NAMES, Counted(), jobs=1, stage="some work", progress=lambda *one: reports.append(one))
    assert reports == [("some work", done, 3) for done in (1, 2, 3)]


@pytest.mark.slow
def test_several_processes_do_the_same_work_and_what_goes_wrong_in_one_is_raised(tmp_path: Path) -> None:
    """In one test, for starting processes is slow."""
    alone = compute_in(tmp_path / "alone", InAnyProcess())
    reports: list[tuple[str, int, int]] = []
    together = Checkpoints(tmp_path / "together", "mine")
    with pytest.raises(gf.Refused, match="^two words cannot be computed$"):
        together.compute(
            NAMES, InAnyProcess("two words", late=1.0), jobs=2, stage="work", progress=lambda *one: reports.append(one)
        )
    assert reports == [("work", done, 3) for done in (0, 1, 2)]
    pieces = together.compute(NAMES[:2], Counted(), jobs=1, stage="again")
    assert "two words.npz" not in files(tmp_path / "together")
    assert [p["letters"].tolist() for p in pieces] == [p["letters"].tolist() for p in alone[:2]]
    assert {int(p["process"][0]) for p in alone} == {os.getpid()}
    assert os.getpid() not in {int(p["process"][0]) for p in pieces}


def test_work_that_cannot_travel_is_done_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_pool(*arguments: object, **more: object) -> None:
        raise AssertionError("no process is to be started")

    monkeypatch.setattr(checkpoints, "process_pool_with", no_pool)
    here: list[int] = []
    lock = threading.Lock()  # which cannot be pickled

    def compute(name: str) -> Checkpoint:
        with lock:
            here.append(os.getpid())
        return {"letters": np.array([len(name)])}

    pieces = compute_in(tmp_path, compute, jobs=2)
    assert [piece["letters"][0] for piece in pieces] == [len(name) for name in NAMES]
    assert here == [os.getpid()] * 3


def test_one_missing_piece_starts_no_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    compute_in(tmp_path, InAnyProcess())
    (tmp_path / "one-1.npz").unlink()
    monkeypatch.setattr(checkpoints, "process_pool_with", None)
    assert len(compute_in(tmp_path, InAnyProcess(), jobs=4)) == 3


def test_what_is_kept_is_for_nobody_else_and_what_is_damaged_is_computed_again(tmp_path: Path) -> None:
    compute_in(tmp_path / "pieces", Counted())
    assert (tmp_path / "pieces").stat().st_mode & 0o777 == 0o700
    (tmp_path / "pieces" / "one-1.npz").write_bytes(b"PK broken")
    rest = Counted()
    compute_in(tmp_path / "pieces", rest)
    assert rest.computed == ["one-1"]
    (tmp_path / "pieces" / IDENTITY).write_text("")
    with pytest.raises(gf.InputError, match="^checkpoints cannot be stored in "):
        compute_in(tmp_path / "pieces", Counted())
