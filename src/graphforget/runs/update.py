"""Updates the model of a run directory to the next state of its graph, and saves all results."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from graphforget.certificates.deleted_data import without_readmitted
from graphforget.certificates.issue import Filing
from graphforget.errors import FloorMissed, InputError, Refused
from graphforget.graph.graph import Graph
from graphforget.models.constructions import OwnModel
from graphforget.progress import Progress
from graphforget.request.request import Request
from graphforget.request.update import Update
from graphforget.runs.apply import Answer, checked_ids, continued_at, first_answers
from graphforget.runs.history import History, history_of
from graphforget.runs.layout import PROOFS, check_writable, open_run, recover
from graphforget.runs.locks import run_lock
from graphforget.runs.proofs import RunTrees, stored_trees
from graphforget.runs.read import read_run
from graphforget.runs.save import save_refusal, save_release
from graphforget.runs.state import check_state
from graphforget.training.losses import Loss, LossFunction
from graphforget.training.trained import RetrainFunction
from graphforget.unlearning.update import returning_items, update


# Longer than 50 lines because of its documentation.
def update_run(
    run: str | Path,
    new_graph: Graph,
    *,
    keep_split: bool = False,
    out: str | Path | None = None,
    request_id: str | None = None,
    key: Ed25519PrivateKey | None = None,
    model: OwnModel | None = None,
    loss: Loss | LossFunction | None = None,
    retrain: RetrainFunction | None = None,
    force: bool = False,
    progress: Progress | None = None,
    **options: Any,
) -> Answer:
    """Updates the model of a run directory to `new_graph`, and saves model, certificate, annex and ledger.

    Args:
        run: The run directory.
        new_graph: The next state of its graph.
        keep_split: Whether known nodes keep their side of the split and new labelled ones train; else the split is that
            of `new_graph`.
        out: A folder for the new state; without it, the new state replaces that of `run`.
        request_id: An id that makes it safe to ask twice: the same id gets the first answer again, to the bit.
        key: The key that signs the certificate and the ledger.
        model: An instance of the user's own module, or the result of `stacked` or `boosted`, if the run has one.
        loss: The user's own loss, if the run has one.
        retrain: The training function of an adopted model.
        force: Whether to overwrite a run directory at `out`.
        progress: The callback to report to.
        **options: Those of `update`, such as `readmit`.

    Returns:
        The answer.

    Raises:
        InputError: Bad input. Nothing was changed.
        Mismatch: The run does not fit its last certificate. Nothing was changed.
        Refused: Deleted data would come back, or the guarantee cannot be given. Nothing was released.
    """
    (name,) = checked_ids(request_id, None, 1)
    if out is not None and Path(out).resolve() == Path(run).resolve():
        raise InputError(f"{out} is the run itself: for its next state use --in-place (out=None) instead of --out")
    target, own = Path(run if out is None else out), _own(model, loss)
    with run_lock(target.resolve()):
        recover(target)
        with open_run(run) as place:
            history = history_of(place)
            trained, graph = read_run(place, retrain=retrain, **own)
            after = graph.next_state(new_graph.with_sides_of(graph) if keep_split else new_graph)
            there = None if out is None else continued_at(target, history, place, **own)
            first = first_answers(
                {name: Update(after)}, (target, there), (Path(run), history), level=options.get("level")
            )
            if first:
                return first[name]
            readmit = options.get("readmit"), options.get("readmit_request")
            _refuse_deleted(history, after, returning_items(trained, graph, after, *readmit))
            check_writable(target, force=force or out is None)
            check_state(place, trained, graph, history)
            trees = RunTrees(graph, stored_trees(place, history, graph), progress)
        filing = Filing(history.head, key, trees.commit)
        try:
            outcome = update(trained, graph, after, progress=progress, filing=filing, **options)
        except FloorMissed as missed:
            with nullcontext() if out is None else run_lock(Path(run).resolve()):
                save_refusal(Path(run), missed, graph, history, filing=filing, request_ids=[name])
            raise
        more = {PROOFS: trees.to_bytes()}
        save_release(target, outcome, history, key=key, request_ids=[name], overwrite=force or out is None, more=more)
    return Answer(outcome.answer(), target, name, outcome)


def _own(model: OwnModel | None, loss: Loss | LossFunction | None) -> dict[str, Any]:
    return {"model": model, "loss": loss}


def _refuse_deleted(history: History, after: Graph, returning: Request | None) -> None:
    """Raises `Refused` if more comes back than is `returning`: an earlier version kept no list of what it deleted."""
    known = after if returning is None else after.without(returning)
    for number, annex in enumerate(history.annexes):
        kind = annex.still_in(without_readmitted(known, history.annexes[number + 1 :]))
        if kind is not None:
            message = f"the new graph would bring back {kind} by a request to an earlier version"
            raise Refused(f"{message}, so nothing was changed: take it out")
