"""The deletions of a run directory: its ledger and its annexes.

ledger.sqlite         all requests, their public answers and certificates, chained by hashes and signed
annex.json            salted hashes of what every request named, and everything that was measured: private
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from graphforget.certificates.annex import Annex
from graphforget.certificates.chain import REFUSED, START, BrokenChain, Chain, Entry, answered_together
from graphforget.certificates.ledger import Ledger
from graphforget.errors import InputError, Mismatch
from graphforget.files import read_bytes
from graphforget.json_files import read_json
from graphforget.runs.layout import ANNEX, DATABASES, EARLIER_LEDGER, LEDGER, LIMITS, open_run
from graphforget.verification.entries import CheckedLedger

if TYPE_CHECKING:
    from graphforget.request.request import Request
    from graphforget.request.update import Update
    from graphforget.training.trained import Trained


@dataclass(frozen=True)
class History:
    """The deletions of a run directory, oldest first."""

    entries: tuple[Entry, ...] = ()
    annexes: tuple[Annex, ...] = ()  # one for each release or refusal; those of an earlier format included
    earlier: bytes | None = None  # the file of a ledger of an earlier format
    follows: str = START  # its head

    @property
    def head(self) -> str:
        """The hash of the last entry; of the earlier format's last one if there is no other."""
        return self.entries[-1].hash if self.entries else self.follows

    @cached_property
    def chain(self) -> Chain:
        """The entries, checked once. Raises `BrokenChain` unless they form a chain."""
        return Chain(self.entries, self.follows)

    @cached_property
    def ledger(self) -> CheckedLedger:
        """The entries with their certificates, checked once. Raises `Mismatch` unless they agree."""
        try:
            return CheckedLedger(self.chain)
        except BrokenChain as error:
            raise Mismatch(str(error)) from error

    @cached_property
    def groups(self) -> tuple[tuple[Entry, ...], ...]:
        """The entries of each release or refusal."""
        return answered_together(self.entries)

    @property
    def own_annexes(self) -> tuple[Annex, ...]:
        """The annexes of the groups of entries, without those of an earlier format."""
        return self.annexes[len(self.annexes) - len(self.groups) :]

    def answered(self, request_id: str, request: Request | Update) -> Entry | None:
        """The entry with this id, or one that refused the same request.

        Raises `InputError` if the id was used for another request.
        """
        commitments = (one for annex in self.own_annexes for one in annex.commitments)
        for entry, commitment in zip(self.entries, commitments, strict=True):
            if entry.request_id != request_id and entry.level != REFUSED:
                continue
            if commitment.digest == entry.request_digest and commitment.is_of(request):
                return entry
            if entry.request_id == request_id:
                raise InputError(f"the request id {request_id!r} was used for another request")
        return None

    def continues(self, other: History, trained: Trained) -> bool:
        """Whether this ledger continues the other one, starting from the model `trained`."""
        if self.follows != other.follows or self.entries[: len(other.entries)] != other.entries:
            return False
        following = self.own_annexes[len(other.groups) :][:1]
        return all(annex.account.get("weights_before") == annex.weights(trained.theta) for annex in following)

    def group_of(self, entry: Entry) -> int:
        """The index of the group of an entry, not by its number, which is not checked yet."""
        return next(index for index, group in enumerate(self.groups) if entry in group)

    def annex_of(self, entry: Entry) -> Annex:
        return self.own_annexes[self.group_of(entry)]


def read_history(folder: str | Path) -> History:
    """The ledger's entries and the annexes; none if the run has answered no request."""
    with open_run(folder) as place:
        return history_of(place)


def history_of(folder: Path) -> History:
    if not os.path.lexists(folder / LEDGER):
        return History()
    for name in sorted(DATABASES):  # a run is written completely, so a log cannot hold anything of it
        if name.endswith("-wal") and (folder / name).exists() and (folder / name).stat().st_size:
            raise InputError(f"{folder / name} is not the run's own, and SQLite would change the ledger by it")
    with Ledger(folder / LEDGER, readonly=True) as ledger:
        entries, is_earlier = ledger.entries(), ledger.format == 1
    earlier_entries: tuple[Entry, ...] = entries if is_earlier else ()
    if not is_earlier and os.path.lexists(folder / EARLIER_LEDGER):
        with Ledger(folder / EARLIER_LEDGER, readonly=True) as ledger:
            earlier_entries = ledger.entries()
    source = folder / (LEDGER if is_earlier else EARLIER_LEDGER)
    earlier = Chain(earlier_entries, format=1)
    annexes = _annexes(folder / ANNEX)
    history = History(
        entries=() if is_earlier else entries,
        annexes=annexes,
        earlier=read_bytes(source, largest=LIMITS[LEDGER]) if earlier_entries else None,
        follows=earlier.head,
    )
    expected = [1] * len(earlier_entries) + [len(group) for group in history.groups]
    counts = [len(annex.commitments) for annex in annexes]
    if sum(counts) != sum(expected):
        raise InputError(f"{folder} has {sum(expected)} entries in its ledger and {sum(counts)} annexes")
    if counts != expected:
        raise InputError(f"{folder} has an annex that answers another number of requests than its ledger says")
    return history


def _annexes(path: Path) -> tuple[Annex, ...]:
    try:
        content = read_json(path, name="the annex", largest=LIMITS[ANNEX])
    except FileNotFoundError as error:
        raise InputError(f"{path} is missing") from error
    listed = content.get("annexes") if isinstance(content, dict) else content  # a plain list in an earlier format
    if not isinstance(listed, list):
        raise InputError(f"{path} holds no list of annexes")
    return tuple(Annex.from_dict(one) for one in listed)
