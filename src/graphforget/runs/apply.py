"""Answers requests against a run directory, and saves all results."""

from __future__ import annotations

import dataclasses
import uuid
from collections import Counter
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any, overload

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from graphforget.certificates.chain import REFUSED, Entry
from graphforget.certificates.entry_fields import check_id
from graphforget.certificates.issue import Filing, roots_of, without_roots
from graphforget.errors import FloorMissed, InputError, Refused
from graphforget.models.constructions import OwnModel
from graphforget.progress import Progress
from graphforget.request.batch import as_requests
from graphforget.request.request import Request
from graphforget.runs.history import History, history_of, read_history
from graphforget.runs.layout import PROOFS, check_free, check_writable, open_run, recover
from graphforget.runs.locks import run_lock
from graphforget.runs.proofs import RunTrees, stored_trees
from graphforget.runs.read import read_run
from graphforget.runs.save import save_refusal, save_release
from graphforget.runs.state import check_state
from graphforget.training.losses import Loss, LossFunction
from graphforget.training.trained import RetrainFunction
from graphforget.unlearning.outcome import Outcome
from graphforget.unlearning.selection import LevelPolicy
from graphforget.unlearning.unlearn import unlearn


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


@overload
def answer(
    run: str | Path,
    request: Request,
    *,
    out: str | Path | None = None,
    request_id: str | None = None,
    key: Ed25519PrivateKey | None = None,
    model: OwnModel | None = None,
    loss: Loss | LossFunction | None = None,
    retrain: RetrainFunction | None = None,
    force: bool = False,
    progress: Progress | None = None,
    **options: Any,
) -> Answer: ...


@overload
def answer(
    run: str | Path,
    request: Sequence[Request],
    *,
    out: str | Path | None = None,
    request_ids: Sequence[str | None] | None = None,
    key: Ed25519PrivateKey | None = None,
    model: OwnModel | None = None,
    loss: Loss | LossFunction | None = None,
    retrain: RetrainFunction | None = None,
    force: bool = False,
    progress: Progress | None = None,
    **options: Any,
) -> tuple[Answer, ...]: ...


# Longer than 50 lines because of its documentation.
def answer(
    run: str | Path,
    request: Request | Sequence[Request],
    *,
    out: str | Path | None = None,
    request_id: str | None = None,
    request_ids: Sequence[str | None] | None = None,
    key: Ed25519PrivateKey | None = None,
    model: OwnModel | None = None,
    loss: Loss | LossFunction | None = None,
    retrain: RetrainFunction | None = None,
    force: bool = False,
    progress: Progress | None = None,
    **options: Any,
) -> Answer | tuple[Answer, ...]:
    """Unlearns a request with the model of a run directory, and saves model, certificate, annex and ledger.

    A list of requests is answered by one release. Each request has its own id and its own entry in the ledger. Requests
    of the list that were answered before are not part of the release: they get their first answer again.

    A release under the model's floor is refused. The refusal is recorded too: the same request is then refused again,
    and no new noise is drawn for it.

    Args:
        run: The run directory.
        request: What to unlearn: a request, or a list of requests.
        out: A folder for the new state; `run` then stays unchanged. Without it, the new state replaces that of `run`,
            one release at a time, also if several processes ask.
        request_id: An id that makes it safe to ask twice: the same id gets the first answer again, to the bit.
        request_ids: For a list of requests, their ids in the same order; None stands for a random id.
        key: The key that signs the certificate and the ledger.
        model: An instance of the user's own module, or the result of `stacked` or `boosted`, if the run has one.
        loss: The user's own loss, if the run has one.
        retrain: The training function of an adopted model.
        force: Whether to overwrite a run directory at `out`.
        progress: The callback to report to.
        **options: Those of `unlearn`.

    Returns:
        The answer. For a list, one answer for each request, in the same order.

    Raises:
        InputError: Bad input. Nothing was changed.
        Mismatch: The run does not fit its last certificate. Nothing was changed.
        Refused: The guarantee cannot be given, or was refused before. Nothing was released.
    """
    requests = as_requests(request)
    named = dict(zip(checked_ids(request_id, request_ids, len(requests)), requests, strict=True))
    if out is not None and Path(out).resolve() == Path(run).resolve():
        raise InputError(f"{out} is the run itself: for its next state use --in-place (out=None) instead of --out")
    target = Path(run if out is None else out)
    overwrite = force or out is None
    with run_lock(target.resolve()):
        recover(target)
        with open_run(run) as place:
            history = history_of(place)
            there = None if out is None else _continued_at(target, history, place, model=model, loss=loss)
            first = first_answers(named, (target, there), (Path(run), history), level=options.get("level"))
            fresh = {name: one for name, one in named.items() if name not in first}
            if fresh:
                check_writable(target, force=overwrite)
                trained, graph = read_run(place, model=model, loss=loss, retrain=retrain)
                check_state(place, trained, graph, history)
                trees = RunTrees(graph, stored_trees(place, history, graph), progress)
        if fresh:
            try:
                filing = Filing(history.head, key, trees.commit)
                outcome = unlearn(trained, graph, list(fresh.values()), progress=progress, filing=filing, **options)
            except FloorMissed as missed:
                with nullcontext() if out is None else run_lock(Path(run).resolve()):
                    save_refusal(Path(run), missed, graph, history, key=key, request_ids=list(fresh))
                raise
            more = {PROOFS: trees.to_bytes()}
            save_release(target, outcome, history, key=key, request_ids=list(fresh), overwrite=overwrite, more=more)
            first |= {name: Answer(outcome.answer(), target, name, outcome) for name in fresh}
    answers = tuple(first[name] for name in named)
    return answers if isinstance(request, list | tuple) else answers[0]


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


def _continued_at(
    target: Path, source: History, place: Path, *, model: OwnModel | None, loss: Loss | LossFunction | None
) -> History | None:
    """The history at `target` if it continues the source's.

    A target that continues another run holds answers to other requests, and an id may mean another request there.
    """
    history = read_history(target)
    if not history.entries or not history.continues(source, read_run(place, model=model, loss=loss)[0]):
        return None
    return history


def first_answers(
    named: dict[str, Request], there: tuple[Path, History | None], here: tuple[Path, History], *, level: Any
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


def save_outcome(
    folder: str | Path,
    outcome: Outcome,
    *,
    after: str | Path | None = None,
    key: Ed25519PrivateKey | None = None,
    request_id: str | None = None,
    request_ids: Sequence[str | None] | None = None,
    force: bool = False,
) -> Path:
    """Saves the run directory of an outcome, with its certificate and released weights.

    Args:
        folder: Where to save it.
        outcome: The outcome of `unlearn`, or that of an `answer`. From the run that is saved here no absence can be
            shown until it has answered its next request: the trees for it stay where `answer` wrote them.
        after: The run directory of the model before the request. Its ledger and annexes are continued.
        key: The key that signs the certificate and the ledger.
        request_id: The id of the request in the ledger. By default it is random.
        request_ids: For an outcome of several requests, their ids in the same order.
        force: Whether to overwrite a run directory.

    Returns:
        The path of the run directory.

    Raises:
        InputError: The folder cannot be written, or the run at `after` cannot be read.
    """
    ids = checked_ids(request_id, request_ids, len(outcome.annex.commitments))
    with run_lock(Path(folder).resolve()):
        check_free(folder, force=force)
        history = History() if after is None else read_history(after)
        given = outcome.certificate
        certificate = Filing(history.head, key).file(without_roots(given) if roots_of(given) else given)
        outcome = dataclasses.replace(outcome, certificate=certificate)
        save_release(Path(folder), outcome, history, key=key, request_ids=ids, overwrite=force)
    return Path(folder)
