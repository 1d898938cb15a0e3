"""The ranks of a launch: messages of JSON and tensors, never pickles, and counters of every byte sent."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor
from torch._C._distributed_c10d import FileStore, PrefixStore, Store
from torch.distributed.rendezvous import rendezvous

from graphforget.distributed.launch import ENDED_FILE, GLOO, NCCL, STORE
from graphforget.errors import InputError
from graphforget.files import write_atomic

TIMEOUT = timedelta(minutes=30)  # the longest that a rank waits for the others
ENDED = "graphforget/ended"  # a key of the store: the exit code with which all ranks have ended on purpose
REPEATED = (b"1", b"2", b"3", b"130")  # what may be there
LARGEST_HEADER = 2**26  # bytes
DTYPES = {str(kind).removeprefix("torch."): kind for kind in (torch.float64, torch.float32, torch.int64, torch.int32)}
DTYPES |= {"uint8": torch.uint8, "bool": torch.bool, "int8": torch.int8}


@dataclass(frozen=True)
class Message:
    """Fields that JSON can hold, and tensors by name."""

    fields: Mapping[str, Any] = field(default_factory=dict)
    tensors: Mapping[str, Tensor] = field(default_factory=dict)

    def array(self, name: str) -> np.ndarray:
        """A tensor as an array."""
        array: np.ndarray = self.tensors[name].numpy()
        return array


@dataclass
class Traffic:
    """What a rank has sent to others, by purpose: bytes of tensors, and of headers."""

    sent: Counter[str] = field(default_factory=Counter)
    calls: Counter[str] = field(default_factory=Counter)

    def add(self, purpose: str, size: int) -> None:
        self.sent[purpose] += size
        self.calls[purpose] += 1


class Group:
    """All ranks. Rank 0 leads: it tells the others what to compute, and only its decisions count."""

    def __init__(self, *, backend: str = GLOO) -> None:
        """Joins the ranks of this launch. Without a GPU for every rank, the backend is gloo."""
        rank, self.size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
        self.rank, self.traffic, self._purpose = rank, Traffic(), "control"
        attempt = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
        self.restarts = int(attempt)
        self._folder = Path(os.environ[STORE]) if STORE in os.environ else None  # of `graphforget launch`
        self._store = self._joined_store()
        # torchrun gives a restarted group the store of the group before, in which the addresses of dead processes are.
        store = PrefixStore(f"graphforget/{attempt}", self._store)
        self._device = self._common_gpu(store) if backend == NCCL else None
        dist.init_process_group(
            NCCL if self._device else GLOO,
            store=store,
            rank=rank,
            world_size=self.size,
            timeout=TIMEOUT,
        )

    def _joined_store(self) -> Store:
        """A file that only this user can open, a new one for each start, or the server of torchrun."""
        if self._folder is None:
            served: Store = next(iter(rendezvous("env://", timeout=TIMEOUT)))[0]
            return served
        store = FileStore(str(self._folder / f"store-{self.restarts}"), self.size)
        store.set_timeout(TIMEOUT)
        return store

    def _common_gpu(self, store: Store) -> torch.device | None:
        """The GPU of this rank, if every rank has one. A rank alone would leave the others waiting."""
        local = int(os.environ.get("LOCAL_RANK", "0"))
        store.set(f"gpu/{self.rank}", str(int(dist.is_nccl_available() and local < torch.cuda.device_count())))
        everywhere = all(store.get(f"gpu/{rank}") == b"1" for rank in range(self.size))
        return torch.device("cuda", local) if everywhere else None

    @property
    def backend(self) -> str:
        """What moves the messages."""
        return NCCL if self._device else GLOO

    @property
    def leads(self) -> bool:
        return self.rank == 0

    @property
    def may_restart(self) -> bool:
        """Whether torchrun starts all ranks again if one dies after the command is done.

        `graphforget launch` does not, because it reads what `end` has noted.
        """
        return self._folder is None and int(os.environ.get("TORCHELASTIC_MAX_RESTARTS", "0")) > self.restarts

    @contextmanager
    def purpose(self, name: str) -> Iterator[None]:
        """Counts what is sent meanwhile under this name."""
        before, self._purpose = self._purpose, name
        try:
            yield
        finally:
            self._purpose = before

    # -- from rank 0 to all, and back -----------------------------------------------------------------------------

    def tell(self, message: Message | None) -> Message:
        """The message of rank 0, on every rank; the others pass None."""
        header = b"" if message is None else _header(message)
        length = self._broadcast(torch.tensor([len(header)]))
        if int(length) > LARGEST_HEADER:
            raise InputError(f"a message has {int(length):,} bytes of text, up to {LARGEST_HEADER:,} are possible")
        text = self._broadcast(_bytes(header) if self.leads else torch.empty(int(length), dtype=torch.uint8))
        fields, shapes = _parsed(text)
        given = {} if message is None else message.tensors
        tensors = {name: self._broadcast(given[name] if self.leads else _empty(shape)) for name, shape in shapes}
        return Message(fields, tensors)

    def reply(self, message: Message) -> list[Message]:
        """The messages of all ranks, on rank 0; an empty list on the others."""
        if self.leads:
            return [message, *(self._received(rank) for rank in range(1, self.size))]
        header = _header(message)
        for tensor in (torch.tensor([len(header)]), _bytes(header), *message.tensors.values()):
            self._count(tensor)
            dist.send(self._out(tensor.contiguous()), 0)
        return []

    def _received(self, rank: int) -> Message:
        length = self._recv(torch.empty(1, dtype=torch.int64), rank)
        fields, shapes = _parsed(self._recv(torch.empty(int(length), dtype=torch.uint8), rank))
        return Message(fields, {name: self._recv(_empty(shape), rank) for name, shape in shapes})

    def _recv(self, tensor: Tensor, rank: int) -> Tensor:
        there = self._out(tensor)
        dist.recv(there, rank)
        return there.cpu()

    def _broadcast(self, tensor: Tensor) -> Tensor:
        there = self._out(tensor.contiguous())
        if self.size > 1:
            if self.leads:
                self._count(tensor, times=self.size - 1)
            dist.broadcast(there, 0)
        return there.cpu()

    # -- among all ------------------------------------------------------------------------------------------------

    def exchange(self, parts: Sequence[np.ndarray], *, purpose: str) -> list[np.ndarray]:
        """Sends part r of the rows to rank r, and gives what the ranks sent here. Every rank calls it.

        All parts have the same type and the same number of columns. How many rows come is part of the exchange.
        """
        mine, shape = parts[self.rank], parts[0].shape[1:]
        counts = self._all_to_all(torch.tensor([len(part) for part in parts]), [1] * self.size, [1] * self.size)
        sizes = [int(count) for count in counts]
        sent = [0 if rank == self.rank else len(part) for rank, part in enumerate(parts)]
        others = [part for rank, part in enumerate(parts) if rank != self.rank and len(part)]
        flat = np.concatenate(others) if others else np.zeros((0, *shape), dtype=mine.dtype)
        got = [0 if rank == self.rank else size for rank, size in enumerate(sizes)]
        self.traffic.add(purpose, flat.nbytes)
        if self.size == 1:
            return [mine]
        received = self._all_to_all(torch.from_numpy(flat), sent, got).numpy()
        ends = np.cumsum([0, *got])
        return [mine if r == self.rank else received[ends[r] : ends[r + 1]] for r in range(self.size)]

    def exchange_known(
        self, rows: np.ndarray, sent: list[int], out: np.ndarray, got: list[int], *, purpose: str
    ) -> None:
        """Sends so many of the rows to each rank, one after the other, and receives so many of each into `out`.

        All ranks know the numbers beforehand, and no row is copied on the way. A rank sends itself nothing.
        """
        self.traffic.add(purpose, rows.nbytes)
        if self.size > 1:
            there = self._out(torch.from_numpy(out))
            dist.all_to_all_single(there, self._out(torch.from_numpy(rows)), got, sent)
            if self._device is not None:
                out[:] = there.cpu().numpy()

    def _all_to_all(self, tensor: Tensor, sent: list[int], got: list[int]) -> Tensor:
        out = self._out(torch.empty((sum(got), *tensor.shape[1:]), dtype=tensor.dtype))
        dist.all_to_all_single(out, self._out(tensor), got, sent)
        return out.cpu()

    # -- the end --------------------------------------------------------------------------------------------------

    def ended_before(self) -> int | None:
        """The exit code of an earlier start by torchrun that ended on purpose: a restart repeats it.

        It is never 0, so nobody who can write into torchrun's store can make a command look done.
        """
        if not self.restarts or self._folder is not None or not self._store.check([ENDED]):
            return None
        noted = self._store.get(ENDED)
        return int(noted) if noted in REPEATED else None

    def end(self, code: int) -> None:
        """Notes that the ranks end on purpose with this exit code, not because one of them died.

        A 0 is noted in the folder of `graphforget launch` alone, which nobody else can open.
        """
        if self.leads and self._folder is not None:
            write_atomic(self._folder / ENDED_FILE, str(code).encode(), mode=0o600)
        elif self.leads and code:
            self._store.set(ENDED, str(code))

    def leave(self) -> None:
        dist.destroy_process_group()

    def _out(self, tensor: Tensor) -> Tensor:
        return tensor if self._device is None else tensor.to(self._device)

    def _count(self, tensor: Tensor, times: int = 1) -> None:
        self.traffic.add(self._purpose, tensor.numel() * tensor.element_size() * times)


def _header(message: Message) -> bytes:
    shapes = [[name, str(one.dtype).removeprefix("torch."), list(one.shape)] for name, one in message.tensors.items()]
    return json.dumps({"fields": message.fields, "tensors": shapes}).encode()


def _parsed(text: Tensor) -> tuple[dict[str, Any], list[tuple[str, tuple[str, list[int]]]]]:
    content = json.loads(text.numpy().tobytes())
    return content["fields"], [(name, (kind, shape)) for name, kind, shape in content["tensors"]]


def _empty(shape: tuple[str, list[int]]) -> Tensor:
    return torch.empty(shape[1], dtype=DTYPES[shape[0]])


def _bytes(content: bytes) -> Tensor:
    return torch.frombuffer(bytearray(content), dtype=torch.uint8) if content else torch.empty(0, dtype=torch.uint8)
