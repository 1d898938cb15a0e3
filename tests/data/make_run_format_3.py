"""Wrote run-format-3.tar.xz, with the package as it was at commit 5d10345: run directories of format 3.

PYTHONPATH=<that checkout>/src python make_run_format_3.py
"""

from __future__ import annotations

import json
import tarfile
import tempfile
from pathlib import Path

import torch

import graphforget as gf
from graphforget.runs.layout import FORMAT

GONE = "patient-0017"

assert FORMAT == 3
graph = gf.load("patients", seed=0)
with tempfile.TemporaryDirectory() as place:
    folder = Path(place)
    gf.save_run(folder / "fresh", gf.train(graph, "sgc", seed=0), graph)
    private, public = gf.make_keys(folder / "key")
    request = gf.Request(nodes=[GONE])
    gf.answer(folder / "fresh", request, out=folder / "answered", request_id="first", key=gf.private_key(private))
    ends = [(0, 1), (1, 2), (2, 3), (3, 4), (4, 5)]
    small = gf.Graph.create(
        x=graph.x.to_dense()[:6, :2] if graph.x.is_sparse_csr else graph.x[:6, :2],
        edges=torch.tensor(ends).T,
        y=torch.tensor([0, 1, 0, 1, 0, 1]),
        num_classes=2,
    )
    gf.save_run(folder / "network", gf.train(small, "gcn", hidden=2, epochs=2, polish_steps=1), small)
    print(json.loads((folder / "answered" / "certificate.json").read_text())["schema"])
    with tarfile.open("run-format-3.tar.xz", "w:xz") as archive:
        for name in ("fresh", "answered", "network"):
            archive.add(folder / name, arcname=name)
