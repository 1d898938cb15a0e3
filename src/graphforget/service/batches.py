"""Answers a batch of requests against a run directory by one release, so that one bad request fails no other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from graphforget.errors import FloorMissed, InputError, Refused
from graphforget.request.request import Request
from graphforget.runs.apply import answer
from graphforget.service.open_models import OpenModel
from graphforget.unlearning.selection import RETRAIN


@dataclass(frozen=True)
class Asked:
    """A request with its id."""

    id: str
    request: Request


def answer_batch(
    run: Path, opened: OpenModel, batch: Sequence[Asked], *, key: Ed25519PrivateKey, made: str
) -> dict[str, Exception]:
    """Answers requests, by one release if that is possible. Returns why some could not be answered, by their ids.

    A batch that cannot be answered is halved, and the halves are answered. Not so below the floor of the model: noise
    was drawn, the ledger holds the refusal of all of them, and drawing again would cost more than was promised.

    Raises:
        InputError: The run directory cannot be read or written. It is no fault of a request.
    """
    batches, failures = answerable(opened, batch)
    for one in batches:
        failures |= _answer(run, one, key=key, made=made)
    return failures


def answerable(opened: OpenModel, batch: Sequence[Asked]) -> tuple[list[Sequence[Asked]], dict[str, Exception]]:
    """Batches that fit the graph, and the requests that do not fit it even alone. Usually there is one batch."""
    if not batch:
        return [], {}
    try:
        merged = RETRAIN.checked_request(opened.trained, opened.graph, [one.request for one in batch])
        opened.graph.without(merged)
    except InputError as error:
        if len(batch) == 1:
            return [], {batch[0].id: error}
        half = len(batch) // 2
        first, second = answerable(opened, batch[:half]), answerable(opened, batch[half:])
        return first[0] + second[0], first[1] | second[1]
    return [batch], {}


def _answer(run: Path, batch: Sequence[Asked], *, key: Ed25519PrivateKey, made: str) -> dict[str, Exception]:
    try:
        answer(run, [one.request for one in batch], request_ids=[one.id for one in batch], key=key, made=made)
    except FloorMissed as missed:
        return {one.id: missed for one in batch}
    except Refused as refusal:
        if len(batch) == 1:
            return {batch[0].id: refusal}
        half = len(batch) // 2
        return _answer(run, batch[:half], key=key, made=made) | _answer(run, batch[half:], key=key, made=made)
    return {}
