"""Labels on ranks: the search for deleted data does not pass over them."""

from __future__ import annotations

from pathlib import Path

import numpy as np

import graphforget as gf
from graphforget.certificates.annex import Annex
from graphforget.certificates.deleted_part import find_deleted_in_part
from graphforget.datasets.sharded_folder import shard
from graphforget.distributed.group import Group
from graphforget.distributed.part_files import open_part, part_folder
from graphforget.distributed.row_ranges import RowRanges
from graphforget.graph.row_part import RowPart


def test_a_label_that_was_to_be_forgotten_is_found_in_a_part(tmp_path: Path) -> None:
    graph = gf.synthetic(nodes=200, edges=600, columns=4, classes=3, train=0.6)
    annex = Annex.of(graph, gf.Request(labels=[150]))
    found = []
    for number, one in enumerate((graph, graph.without(gf.Request(labels=[150])))):
        shard(one, tmp_path / str(number), parts=2)
        for rank in range(2):
            files = open_part(part_folder(tmp_path / str(number), rank))
            arrays: dict[str, np.ndarray] = {name: files.map(name) for name in files.files}
            part = RowPart(RowRanges(200, 2), rank, arrays)
            found.append(find_deleted_in_part(annex, part, Group.__new__(Group), num_edges=graph.num_edges))
    assert found == [None, "a label that was to be forgotten", None, None]
