"""Answers a batch of requests against a run directory by one release, so that one bad request fails no other."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from graphforget.errors import FloorMissed, InputError, Refused
from graphforget.request.request import Request
from graphforget.runs.apply import answer
from graphforget.service.open_models import OpenModel
from graphforget.unlearning.selection import RETRAIN
from graphforget.unlearning.task import Task


@dataclass(frozen=True)
class Asked:
    """A request with its id."""

    id: str
    request: Request


def answer_batch(
    run: Path, batch: Sequence[Asked], open_run: Callable[[], OpenModel], *, key: Ed25519PrivateKey, made: str
) -> dict[str, Exception]:
    """Answers requests, by one release if that is possible. Returns why some could not be answered, by their ids.

    A batch that cannot be answered is halved, and its halves are answered one after the other. Not so below the floor
    of the model: noise was drawn, the ledger holds the refusal of all of them, and drawing again would cost more than
    was promised.

    Raises:
        InputError: The run directory cannot be read or written. It is no fault of a request.
    """
    if not batch:
        return {}
    failure = _attempt(run, batch, open_run(), key=key, made=made)
    if failure is None:
        return {}
    if len(batch) == 1 or isinstance(failure, FloorMissed):
        return {one.id: failure for one in batch}
    half = len(batch) // 2
    first = answer_batch(run, batch[:half], open_run, key=key, made=made)
    return first | answer_batch(run, batch[half:], open_run, key=key, made=made)


def _attempt(
    run: Path, batch: Sequence[Asked], opened: OpenModel, *, key: Ed25519PrivateKey, made: str
) -> Exception | None:
    """Answers a batch, or returns why it cannot be answered."""
    requests = [one.request for one in batch]
    try:
        merged = RETRAIN.checked_request(opened.trained, opened.graph, requests)
        Task.of(opened.trained, opened.graph, merged, device="cpu")
    except InputError as error:  # it does not fit the graph
        return error
    try:
        answer(run, requests, request_ids=[one.id for one in batch], key=key, made=made)
    except Refused as refusal:
        return refusal
    return None
