"""Rank 0 calls, all ranks compute: calls by name, answers of every rank, and sums in the fixed tree."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from graphforget.distributed.group import Group, Message
from graphforget.distributed.row_ranges import RowRanges, Span, joined_sum
from graphforget.errors import InputError, Mismatch, OtherVersion, Refused

STOP = "stop"
REPLACES = ("open", "remove")  # calls after which another graph is in memory
ERRORS: dict[str, type[Exception]] = {kind.__name__: kind for kind in (InputError, OtherVersion, Mismatch, Refused)}

Server = Callable[[str, Message], Message]  # answers a call on one rank


class Ranks:
    """All ranks, as rank 0 sees them. On the other ranks, `serve` answers its calls until it stops them."""

    def __init__(self, group: Group, server: Server) -> None:
        self.group, self._server = group, server
        self.graphs = 0  # that the ranks have had in memory, one after the other; the last one is there now

    def call(
        self,
        name: str,
        fields: Mapping[str, Any] | None = None,
        tensors: Mapping[str, Tensor] | None = None,
        *,
        purpose: str = "control",
    ) -> list[Message]:
        """The answers of all ranks. Raises the error of the first rank that has one, with its sentence."""
        with self.group.purpose(purpose):
            message = self.group.tell(Message({"call": name, "purpose": purpose, **(fields or {})}, tensors or {}))
            replies = self.group.reply(self._answer(message))
        self.graphs += name in REPLACES
        for reply in replies:
            if "error" in reply.fields:
                raise ERRORS.get(reply.fields["error"], RuntimeError)(reply.fields["message"])
        return replies

    def stop(self, code: int) -> None:
        """Ends `serve` on the other ranks, with this exit code."""
        self.group.tell(Message({"call": STOP, "code": code}))

    def serve(self) -> int:
        """Answers the calls of rank 0 until it stops, and gives its exit code."""
        while True:
            message = self.group.tell(None)
            if message.fields["call"] == STOP:
                return int(message.fields["code"])
            with self.group.purpose(str(message.fields["purpose"])):
                self.group.reply(self._answer(message))

    def _answer(self, message: Message) -> Message:
        try:
            return self._server(str(message.fields["call"]), message)
        except (InputError, Mismatch, Refused) as error:
            return Message({"error": type(error).__name__, "message": str(error)})


def joined_replies(replies: list[Message], ranges: RowRanges) -> Tensor:
    """The sum of the tensors `sums` that the ranks answer, a row for each of their subtrees of blocks."""
    spans: list[Span] = [span for rank in range(ranges.parts) for span in ranges.subtrees_of(rank)]
    rows = [row for reply in replies for row in reply.tensors["sums"]]
    return joined_sum(ranges.num_blocks, spans, rows, torch.add)
