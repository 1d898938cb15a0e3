"""What rank 0 says to the other ranks while it answers a signed request."""

from __future__ import annotations

import json
import threading
from pathlib import Path

import torch
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from safetensors.torch import load_file

import graphforget as gf
from distributed_cases import sharded
from graphforget.distributed.group import Message
from graphforget.distributed.ranks import Ranks
from graphforget.runs.on_ranks import answer_on_ranks, train_on_ranks
from graphforget.runs.part_server import PartServer
from thread_ranks import ThreadGroup


class Overheard(ThreadGroup):
    """A group that keeps what rank 0 says to all."""

    messages: list[Message]

    def tell(self, message: Message | None) -> Message:
        assert message is not None
        self.messages.append(message)
        return super().tell(message)


def test_the_signing_key_and_the_noise_itself_stay_on_rank_0(tmp_path: Path) -> None:
    graph = gf.synthetic(nodes=200, edges=600, columns=5, classes=3, train=0.6)
    group, key = Overheard(0, 1, threading.Barrier(1), {}), Ed25519PrivateKey.generate()
    group.messages = []
    ranks = Ranks(group, PartServer(group))
    train_on_ranks(ranks, sharded(graph, tmp_path, 1)[1], "sgc", out=tmp_path / "run")
    (answer,) = answer_on_ranks(ranks, tmp_path / "run", [gf.Request(nodes=[7])], key=key)
    text = json.dumps([message.fields for message in group.messages])
    told = [tensor for message in group.messages for tensor in message.tensors.values()]
    assert key.private_bytes_raw().hex() not in text
    assert not any(key.private_bytes_raw() in tensor.numpy().tobytes() for tensor in told)
    (released,) = load_file(tmp_path / "run" / "released.safetensors").values()
    assert answer.outcome is not None
    noise = released - answer.outcome.centre
    assert float(noise.norm()) > 0.01
    vectors = [tensor for tensor in told if tensor.shape == noise.shape]
    assert any(torch.equal(tensor, released) for tensor in vectors)  # as docs/scale.md says
    assert not any(torch.allclose(tensor, noise, atol=1e-9) for tensor in vectors)
