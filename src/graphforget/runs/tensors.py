"""Tensors from files that somebody else may have written."""

from __future__ import annotations

import json
import os
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load
from torch import Tensor

from graphforget.files import UnsafeFile, error_reason, open_regular, read_all
from graphforget.graph.edge_arrays import EDGE_ARRAYS

SPARSE = ("x.crow", "x.columns", "x.values")
TENSORS = {
    "edge_index": torch.int64,
    "train_mask": torch.bool,
    "val_mask": torch.bool,
    "test_mask": torch.bool,
    "numbers": torch.int64,
}
TARGETS = (torch.int64, torch.int8, torch.float64)  # classes, labels, values
OPTIONAL = {"graph_numbers": torch.int64} | EDGE_ARRAYS  # only in the files of a collection, or of weighted edges
STATE = "state."  # before the names of buffers and frozen parameters
RELEASED_STATE = "released."  # before the names of tensors that are released beside the weights
LARGEST_HEADER = 2**20  # bytes that describe the tensors of a file


def metadata_of(content: bytes) -> dict[str, str]:
    """The texts that stand beside the tensors in the content of a safetensors file that was read."""
    size = int.from_bytes(content[:8], "little")
    return dict(json.loads(content[8 : 8 + size]).get("__metadata__") or {})


def read_tensors(path: Path, *, largest: int) -> tuple[dict[str, Tensor], bytes]:
    """The tensors of a safetensors file, and its bytes. Nothing is read that its header does not account for."""
    with open_regular(path, largest=largest) as file:
        size = int.from_bytes(file.read(8), "little")
        if size > LARGEST_HEADER:
            raise UnsafeFile(
                f"{path} cannot be read: its header has {size:,} bytes, up to {LARGEST_HEADER:,} are possible"
            )
        try:
            ends = [tensor["data_offsets"][1] for name, tensor in json.loads(file.read(size)).items() if name[0] != "_"]
            expected = 8 + size + max(ends, default=0)
        except (ValueError, TypeError, KeyError, IndexError, AttributeError, RecursionError) as error:
            raise UnsafeFile(f"{path} cannot be read: it has no header of a safetensors file") from error
        if expected != os.fstat(file.fileno()).st_size:
            raise UnsafeFile(f"{path} cannot be read: it has not the size that its header says")
        file.seek(0)
        content = read_all(file, largest, path)
    try:
        return load(content), content
    except (SafetensorError, ValueError, TypeError, KeyError, RuntimeError, OverflowError) as error:
        raise UnsafeFile(f"{path} cannot be read: {error_reason(error)}") from error
