"""The command `graphforget shard`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

import graphforget as gf
from graphforget.cli.console import progress, say
from graphforget.cli.options import AsJson


def shard(
    data: Annotated[
        str,
        typer.Argument(metavar="DATA", help="A dataset's name, a folder with CSV or Parquet files, or a PyG .pt file."),
    ],
    parts: Annotated[int, typer.Option(min=1, help="The number of parts: as many as there will be ranks.")],
    out_folder: Annotated[Path, typer.Option("--out", help="The folder to write.")],
    seed: Annotated[int, typer.Option(min=0, help="Seed of the split.")] = 0,
    split: Annotated[str | None, typer.Option(help="random (90/10), public or given; see docs/data.md.")] = None,
    as_json: AsJson = False,
) -> None:
    """Split an undirected graph into parts for 'torchrun', a range of node numbers each.

    Parquet files are read in batches, so the whole graph is never in memory.
    """
    from graphforget.datasets.parquet import is_parquet, shard_parquet
    from graphforget.datasets.sharded_folder import shard as write_shards

    with progress(quiet=as_json) as report:
        if is_parquet(data):
            manifest = shard_parquet(data, out_folder, parts=parts, seed=seed, split=split, progress=report)
        else:
            graph = gf.load(data, seed=seed, split=split)
            manifest = write_shards(graph, out_folder, parts=parts, progress=report)
    facts = manifest.facts
    result = {
        "audience": "private",
        "out": str(out_folder),
        "parts": manifest.parts,
        "starts": list(manifest.starts),
        "columns": facts.num_columns,
        "classes": facts.num_classes,
        "digest": manifest.digest,
    }
    if as_json:
        print(json.dumps(result))
        return
    say(f"{facts.nodes:,} node numbers in {manifest.parts} parts, {facts.num_columns} columns.")
    say(f"Written to {out_folder}. Train on it with:")
    say(f"  graphforget launch --ranks {manifest.parts} -- train --data {out_folder} --model sgc --out runs/mine")
