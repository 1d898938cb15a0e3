"""Updates the model of a run directory to the next state of its graph, and saves all results."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from graphforget.certificates.deleted_data import without_readmitted
from graphforget.certificates.issue import Filing
from graphforget.datasets.registry import DATASETS, load
from graphforget.errors import Refused
from graphforget.graph.graph import Graph
from graphforget.models.constructions import OwnModel
from graphforget.progress import Progress
from graphforget.request.request import Request
from graphforget.request.update import Update
from graphforget.runs.answering import Answer, Asking, Read, checked_ids
from graphforget.runs.history import History, history_of
from graphforget.runs.layout import open_run
from graphforget.runs.read import read_run
from graphforget.training.losses import Loss, LossFunction
from graphforget.training.trained import RetrainFunction, Trained
from graphforget.unlearning.outcome import Outcome
from graphforget.unlearning.plan_update import UpdatePlan, plan_update
from graphforget.unlearning.update import deleted_again, returning_items, update


# Longer than 50 lines because of its documentation.
def update_run(
    run: str | Path,
    new_graph: Graph | str | Path,
    *,
    keep_split: bool = False,
    target: str | None = None,
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
        new_graph: The next state of its graph, or the folder, file or dataset that holds it, as for `load`. In a file
            a class of the model may have no node left.
        keep_split: Whether known nodes keep their side of the split and new labelled ones train; else the split is that
            of `new_graph`, and of files the given one.
        target: For a PyG file with a `HeteroData`, the type of the nodes that are predicted.
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
    )

    def named(read: Read) -> dict[str, Request | Update]:
        return {name: Update(_next_state(read()[1], new_graph, keep_split=keep_split, target=target))}

    def release(trained: Trained, graph: Graph, history: History, fresh: Sequence[Any], filing: Filing) -> Outcome:
        (asked,) = fresh
        readmit = options.get("readmit"), options.get("readmit_request")
        _refuse_deleted(history, asked.graph, returning_items(trained, graph, asked.graph, *readmit))
        return update(trained, graph, asked.graph, progress=progress, filing=filing, **options)

    return asking.answers(named, release)[name]


def plan_update_run(
    run: str | Path,
    new_graph: Graph | str | Path,
    *,
    keep_split: bool = False,
    target: str | None = None,
    model: OwnModel | None = None,
    loss: Loss | LossFunction | None = None,
    retrain: RetrainFunction | None = None,
    **options: Any,
) -> UpdatePlan:
    """Says what `update_run` would do with the same arguments. Changes nothing.

    Args:
        run: The run directory.
        new_graph: The next state of its graph, as for `update_run`.
        keep_split: As for `update_run`.
        target: As for `update_run`.
        model: An instance of the user's own module, or the result of `stacked` or `boosted`, if the run has one.
        loss: The user's own loss, if the run has one.
        retrain: The training function of an adopted model.
        **options: Those of `plan_update`, such as `readmit`.

    Returns:
        The plan. It is private, because it depends on the data.

    Raises:
        InputError: The arguments do not fit together.
    """
    with open_run(run) as place:
        history = history_of(place)
        trained, graph = read_run(place, model=model, loss=loss, retrain=retrain)
    after = _next_state(graph, new_graph, keep_split=keep_split, target=target)
    result = plan_update(trained, graph, after, **options)
    try:
        _refuse_deleted(history, after, deleted_again(trained, graph, after))
    except Refused as refusal:  # beside what the list of the run counts
        return dataclasses.replace(result, level=None, meaning=f"would be refused: {refusal}", seconds=0.0)
    return result


def _next_state(graph: Graph, new_graph: Graph | str | Path, *, keep_split: bool, target: str | None) -> Graph:
    if isinstance(new_graph, str | Path):
        named = isinstance(new_graph, str) and new_graph.lower() in DATASETS  # which has no split of its own
        new_graph = load(new_graph, split=None if named else "given", target=target, like=graph)
    return graph.next_state(new_graph.with_sides_of(graph) if keep_split else new_graph)


def _refuse_deleted(history: History, after: Graph, returning: Request | None) -> None:
    """Raises `Refused` if more comes back than is `returning`: an earlier version kept no list of what it deleted."""
    known = after if returning is None else after.without(returning)
    for number, annex in enumerate(history.annexes):
        kind = annex.still_in(without_readmitted(known, history.annexes[number + 1 :]))
        if kind is not None:
            message = f"the new graph would bring back {kind} by a request to an earlier version"
            raise Refused(f"{message}, so nothing was changed: take it out")
