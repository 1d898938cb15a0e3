"""Answers requests against a run directory, and saves all results."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any, overload

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from graphforget.certificates.issue import Filing, roots_of, without_roots
from graphforget.graph.graph import Graph
from graphforget.models.constructions import OwnModel
from graphforget.progress import Progress
from graphforget.request.batch import as_requests
from graphforget.request.request import Request
from graphforget.runs.answering import Answer, Asking, checked_ids
from graphforget.runs.history import History, read_history
from graphforget.runs.layout import check_free
from graphforget.runs.locks import run_lock
from graphforget.runs.save import save_release
from graphforget.training.losses import Loss, LossFunction
from graphforget.training.trained import RetrainFunction, Trained
from graphforget.unlearning.outcome import Outcome
from graphforget.unlearning.unlearn import unlearn


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
    made: str | None = None,
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
    made: str | None = None,
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
    made: str | None = None,
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
        made: The time that the public documents state, in UTC, for requests that are answered in fixed rounds. By
            default it is the present, which tells when a request was answered.
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
    asking = Asking(
        run=Path(run),
        out=None if out is None else Path(out),
        key=key,
        model=model,
        loss=loss,
        retrain=retrain,
        force=force,
        progress=progress,
        level=options.get("level"),
        made=made,
    )

    def release(trained: Trained, graph: Graph, _: History, fresh: Sequence[Any], filing: Filing) -> Outcome:
        return unlearn(trained, graph, fresh, progress=progress, filing=filing, **options)

    by_id = asking.answers(lambda _: named, release)
    answers = tuple(by_id[name] for name in named)
    return answers if isinstance(request, list | tuple) else answers[0]


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
