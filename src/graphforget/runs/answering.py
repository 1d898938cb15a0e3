"""How a run directory is asked: what was answered before is repeated, and the rest is one release.

A request and an update go the same way: the lock, the history, the first answers, the checks of the run, and the file
of a release or of a refusal.
"""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from graphforget.certificates.chain import REFUSED, Entry
from graphforget.certificates.entry_fields import check_id, check_time
from graphforget.certificates.issue import Filing
from graphforget.certificates.signing import check_private_key
from graphforget.errors import FloorMissed, InputError, Refused
from graphforget.graph.graph import Graph
from graphforget.models.constructions import OwnModel
from graphforget.progress import Progress
from graphforget.request.request import Request
from graphforget.request.update import Update
from graphforget.runs.history import History, history_of, read_history
from graphforget.runs.layout import PROOFS, check_writable, open_run, recover
from graphforget.runs.locks import run_lock
from graphforget.runs.proofs import RunTrees, stored_trees
from graphforget.runs.read import read_run
from graphforget.runs.save import save_refusal, save_release
from graphforget.runs.state import check_state
from graphforget.training.losses import Loss, LossFunction
from graphforget.training.trained import RetrainFunction, Trained
from graphforget.unlearning.outcome import Outcome
from graphforget.unlearning.selection import LevelPolicy

Read = Callable[[], tuple[Trained, Graph]]
Release = Callable[[Trained, Graph, History, Sequence[Request | Update], Filing], Outcome]


@dataclass(frozen=True, eq=False)
class Answer:
    """The answer to a request against a run directory. `outcome` is None if an earlier answer was repeated."""

    summary: dict[str, Any]
    folder: Path
    request_id: str
    outcome: Outcome | None

    @property
    def repeated(self) -> bool:
        return self.outcome is None


@dataclass(frozen=True, kw_only=True, eq=False)
class Asking:
    """A run directory to ask, the place of its next state, and what is needed to read and to sign; see `answer`."""

    run: Path
    out: Path | None
    key: Ed25519PrivateKey | None
    model: OwnModel | None
    loss: Loss | LossFunction | None
    retrain: RetrainFunction | None
    force: bool
    progress: Progress | None
    level: Any
    made: str | None = None

    def __post_init__(self) -> None:
        if self.key is not None:
            check_private_key(self.key)
        if self.out is not None and self.target.resolve() == self.run.resolve():
            message = f"{self.out} is the run itself"
            raise InputError(f"{message}: for its next state use --in-place (out=None) instead of --out")
        if self.made is not None:
            check_time(self.made)

    @property
    def target(self) -> Path:
        return self.run if self.out is None else self.out

    @property
    def overwrite(self) -> bool:
        return self.force or self.out is None

    def answers(self, name: Callable[[Read], Mapping[str, Request | Update]], release: Release) -> dict[str, Answer]:
        """The first answers to what was asked before, and one release for the rest, by the ids.

        Args:
            name: Gives what is asked by ids. It gets a function that reads the model and its graph.
            release: Gives the outcome of those that were not answered before.
        """
        with run_lock(self.target.resolve()):
            recover(self.target)
            with open_run(self.run) as place:
                history = history_of(place)
                read: Read = cache(lambda: read_run(place, model=self.model, loss=self.loss, retrain=self.retrain))
                named = name(read)
                first = self._first(named, history, place)
                fresh = {one: asked for one, asked in named.items() if one not in first}
                if not fresh:
                    return first
                check_writable(self.target, force=self.overwrite)
                trained, graph = read()
                check_state(place, trained, graph, history)
                trees = RunTrees(graph, stored_trees(place, history, graph), self.progress)
            filing = Filing(history.head, self.key, trees.commit, self.made)
            saved: dict[str, Any] = {"request_ids": list(fresh)}
            try:
                outcome = release(trained, graph, history, list(fresh.values()), filing)
            except FloorMissed as missed:
                with nullcontext() if self.out is None else run_lock(self.run.resolve()):
                    save_refusal(self.run, missed, graph, history, filing=filing, **saved)
                raise
            saved |= {"overwrite": self.overwrite, "more": {PROOFS: trees.to_bytes()}}
            save_release(self.target, outcome, history, key=self.key, **saved)
        return first | {one: Answer(outcome.answer(), self.target, one, outcome) for one in fresh}

    def _first(self, named: Mapping[str, Request | Update], history: History, place: Path) -> dict[str, Answer]:
        there = None
        if self.out is not None:
            there = continued_at(self.out, history, lambda: read_run(place, model=self.model, loss=self.loss)[0])
        return first_answers(named, (self.target, there), (self.run, history), level=self.level)


def checked_ids(request_id: str | None, request_ids: Sequence[str | None] | None, count: int) -> list[str]:
    """An id for each request: the given one, or a random one."""
    if request_ids is None:
        if request_id is not None and count > 1:
            raise InputError(f"request_id is one id for {count} requests, request_ids with one for each is needed")
        request_ids = [request_id] + [None] * (count - 1)
    elif request_id is not None or isinstance(request_ids, str) or len(request_ids) != count:
        raise InputError(f"request_ids must be a list with one id for each request, here {count}, without a request_id")
    given = [one for one in request_ids if one is not None]
    for one in given:
        check_id(one)
    twice = next((one for one, times in Counter(given).items() if times > 1), None)
    if twice is not None:
        raise InputError(f"the request id {twice!r} is given twice, every request needs its own")
    return [str(uuid.uuid4()) if one is None else one for one in request_ids]


def continued_at(target: Path, source: History, model: Callable[[], Trained]) -> History | None:
    """The history at `target` if it continues the source's, which is that of a run with this model.

    A target that continues another run holds answers to other requests, and an id may mean another request there. The
    model is not read if there is no history.
    """
    history = read_history(target)
    return history if history.entries and history.continues(source, model()) else None


def first_answers(
    named: Mapping[str, Request | Update], there: tuple[Path, History | None], here: tuple[Path, History], *, level: Any
) -> dict[str, Answer]:
    """The answers to those of the requests that were answered before, by their ids.

    `here` is the run to start from, and `there` what continues it at another place, if anything does.
    """
    answers: dict[str, Answer] = {}
    only_there: list[str] = []
    for name, request in named.items():
        entry = here[1].answered(name, request)
        continued = None if there[1] is None else there[1].answered(name, request)
        if there[1] is not None and continued is not None:
            answers[name] = _repeated(continued, there[1], there[0], level)
            only_there += [name] if entry is None else []
        elif entry is not None:
            answers[name] = _repeated(entry, here[1], here[0], level)
    if only_there and len(answers) < len(named):  # the next state of `here` would lack what was answered there
        message = f"request {only_there[0]!r} was answered in {there[0]}, and others of the list were not"
        raise InputError(f"{message}: answer these with {there[0]} as the run")
    return answers


def _repeated(earlier: Entry, history: History, folder: Path, level: Any) -> Answer:
    """The answer that was given before. Raises `Refused` if that was a refusal, or under the `level`."""
    public = history.ledger.answers[history.group_of(earlier)]
    if earlier.level == REFUSED:
        raise Refused(f"this request was refused before: {public.get('refused')}")
    if not LevelPolicy(level).met_by(earlier.level):  # type: ignore[arg-type]
        message = f"request {earlier.request_id!r} was answered before, at level {earlier.level!r}"
        raise Refused(f"{message}, not {level!r}")
    private = dict(history.annex_of(earlier).account)
    return Answer({**public, "private": private}, folder, earlier.request_id, None)
