"""shards.json: where the parts of a run's graph are, and which state of them is the run's."""

from __future__ import annotations

import dataclasses
import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from graphforget.distributed.group import Message
from graphforget.distributed.ranks import Ranks
from graphforget.errors import InputError, OtherVersion
from graphforget.files import read_bytes
from graphforget.graph.distributed_graph import GraphFacts
from graphforget.json_files import parse_json
from graphforget.runs.layout import LARGEST, LIMITS, SHARDS, DamagedRun, checksum, open_run, real_path
from graphforget.runs.run_file import RunFile, read_run_file
from graphforget.runs.save import json_bytes
from graphforget.runs.tensors import read_tensors
from graphforget.validation import read_fields

FORMAT = 2


@dataclass(frozen=True, kw_only=True)
class Shards:
    """shards.json: the parts of a run's graph, and which state of them is the run's."""

    facts: GraphFacts
    folder: str  # in RUN.parts
    state: str  # of the parts in this folder; a journal of another state was never committed
    digests: tuple[str, ...]
    encoder_inputs: tuple[str, ...] | None = None  # of a stacked model: digests of what each encoder was trained on
    format: int = FORMAT


def parts_folder(run: str | Path) -> Path:
    """The folder with the parts of a run, beside it."""
    folder = real_path(run)
    return folder.with_name(f"{folder.name}.parts")


def shards_bytes(shards: Shards) -> bytes:
    """The content of the file."""
    return json_bytes(dataclasses.asdict(shards))


def read_shards(place: Path, run: RunFile) -> Shards:
    """The parts of a run. Raises `InputError` if its graph is not in parts."""
    if SHARDS not in run.sha256:
        raise InputError(f"the graph of {place} is not in parts: start the command without torchrun")
    content = read_bytes(place / SHARDS, largest=LIMITS[SHARDS])
    if checksum(content) != run.sha256[SHARDS]:
        raise DamagedRun(f"{place} is damaged: {SHARDS} is not the file that was written")
    fields = parse_json(content, name=SHARDS)
    found = fields.get("format") if isinstance(fields, dict) else None
    if found != FORMAT:
        raise OtherVersion(f"{place / SHARDS} has format {str(found)[:80]}, this version reads format {FORMAT}")
    shards = read_fields(Shards, fields, SHARDS)
    if shards.folder.isalnum():
        return shards
    raise DamagedRun(f"{place} is damaged: {SHARDS} names no folder with parts")


def read_weights(folder: Path, run: RunFile) -> dict[str, Tensor]:
    """The tensors of weights.safetensors, after a check of their checksum, for a run whose graph is in parts."""
    try:
        weights, content = read_tensors(folder / "weights.safetensors", largest=LARGEST)
    except FileNotFoundError as error:
        raise DamagedRun(f"{folder} is damaged: {error.filename} is missing") from error
    if checksum(content) != run.sha256.get("weights.safetensors"):
        raise DamagedRun(f"{folder} is damaged: weights.safetensors is not the file that was written")
    return weights


# -- the parts of a run, written by all ranks --------------------------------------------------------------------------


def written_parts(ranks: Ranks, run: str | Path, facts: GraphFacts) -> Shards:
    """Every rank writes its part, as it is in memory, into a new folder beside the run."""
    token, state = uuid.uuid4().hex, uuid.uuid4().hex
    replies = ranks.call("write", {"folder": str(parts_folder(run) / token)})
    return Shards(facts=facts, folder=token, state=state, **_digests(replies))


def staged_parts(ranks: Ranks, shards: Shards) -> Shards:
    """Every rank writes a journal of what changed in its memory."""
    state = uuid.uuid4().hex
    return dataclasses.replace(shards, state=state, **_digests(ranks.call("stage", {"state": state})))


def sweep_parts(ranks: Ranks, run: str | Path) -> None:
    """Removes the folders with parts that are no longer, or never were, those of the run."""
    with open_run(run) as place:
        shards = read_shards(place, read_run_file(place))
    ranks.call("sweep", {"folder": str(parts_folder(run)), "keep": shards.folder})


def _digests(replies: list[Message]) -> dict[str, Any]:
    """The digests of the parts that ranks have written, and of what encoders were trained on, if there are any."""
    inputs = dict(one for reply in replies for one in reply.fields["inputs"])
    encoders = tuple(inputs[number] for number in sorted(inputs)) or None
    return {"digests": tuple(reply.fields["digest"] for reply in replies), "encoder_inputs": encoders}
