"""Wrote run-digest-3.tar.xz, with the package as it was at commit 53e9537: runs of format 4 with the earlier digest.

PYTHONPATH=<that checkout>/src python make_run_digest_3.py
"""

from __future__ import annotations

import tarfile
import tempfile
from pathlib import Path

import torch

import graphforget as gf
from graphforget.graph.digest import DIGEST

assert DIGEST == "graphforget-graph-3"
generator = torch.Generator().manual_seed(0)
graph = gf.Graph.create(
    x=torch.randn(30, 3, generator=generator),
    edges=torch.randint(0, 30, (2, 60), generator=generator),
    y=torch.arange(30) % 2,
    subject_ids=[f"person-{number:02d}" for number in range(30)],
).split(seed=0, test=0.3)
with tempfile.TemporaryDirectory() as place:
    folder = Path(place)
    gf.save_run(folder / "fresh", gf.train(graph, "sgc", seed=0), graph)
    private, public = gf.make_keys(folder / "key")
    request = gf.Request(nodes=["person-07"])
    gf.answer(folder / "fresh", request, out=folder / "answered", request_id="first", key=gf.private_key(private))
    with tarfile.open("run-digest-3.tar.xz", "w:xz") as archive:
        for name in ("fresh", "answered", "key.pub"):
            archive.add(folder / name, arcname=name)
