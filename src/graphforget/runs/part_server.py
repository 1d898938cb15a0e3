"""What a rank computes when rank 0 calls: one method a call, on the rank's own part of the graph."""

from __future__ import annotations

import resource
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from graphforget.certificates.annex import Annex
from graphforget.certificates.deleted_part import find_deleted_in_part
from graphforget.certificates.part_slots import lower_path, positions_in_part, slot_subtrees
from graphforget.distributed.group import Group, Message
from graphforget.distributed.part_files import PartFiles, open_part, part_folder
from graphforget.distributed.part_journal import settle, write_journal
from graphforget.distributed.row_ranges import RowRanges
from graphforget.errors import InputError, Mismatch, OtherVersion
from graphforget.graph.distributed_graph import MOST_SCORED
from graphforget.graph.hashing import node_hashes, salt, salted
from graphforget.graph.row_part import TEST, TRAIN, VALIDATION, Deletion, RowPart
from graphforget.models.part_embeddings import PartEmbeddings
from graphforget.models.part_features import PartFeatures, part_logits, propagate_part
from graphforget.models.part_following import Followed, follow_part
from graphforget.runs.part_state import checked_arrays, feature_settings, new_part, stored_features, sweep_parts
from graphforget.training.environment import versions
from graphforget.training.losses import as_loss
from graphforget.training.part_encoders import PartEncoders
from graphforget.training.part_losses import PartLosses


@dataclass
class PartServer:
    """The state of one rank: its part of the graph, the features of its rows, and its losses."""

    group: Group
    files: PartFiles | None = None
    opened: RowPart | None = None
    features: PartFeatures | None = None
    losses: PartLosses | None = None
    bias: bool = True
    changed: list[Followed] = field(default_factory=list)
    embedded: PartEmbeddings = field(init=False)
    encoders: PartEncoders = field(init=False)

    def __post_init__(self) -> None:
        self.embedded, self.encoders = PartEmbeddings(self.group), PartEncoders(self.group)

    def _forget_derived(self) -> None:
        """Drops what was computed from the part as it was before."""
        self.losses = None
        self.embedded.forget()
        self.encoders.forget_parts()

    @property
    def part(self) -> RowPart:
        if self.opened is None:
            raise InputError("no graph is open")
        return self.opened

    def __call__(self, name: str, message: Message) -> Message:
        calls: dict[str, Callable[[Message], Message]] = {
            "open": self.open,
            "find": self.find,
            "has edges": self.has_edges,
            "remove": self.remove,
            "changed encoders": lambda given: self.encoders.changed(self.part, given.fields),
            "train encoders": lambda given: self.encoders.train(self.part, given.fields),
            "prepare": self.prepare,
            "row norms": self.row_norms,
            "gradient": self.gradient,
            "curvature": self.curvature,
            "product": self.product,
            "sample": self.sample,
            "outputs": self.outputs,
            "write": self.write,
            "sweep": self.sweep,
            "stage": self.stage,
            "settle": self.settle,
            "check": self.check,
            "search": self.search,
            "slots": self.slots,
            "slot path": self.slot_path,
            "positions": self.positions,
            "counters": self.counters,
        }
        return calls[name](message)

    # -- the part ------------------------------------------------------------------------------------------------

    def open(self, message: Message) -> Message:
        """Opens this rank's part, after an unfinished deletion is carried out or dropped."""
        given = message.fields
        for name, version in versions().items():
            if given["versions"].get(name) != version:
                message_ = f"rank {self.group.rank} has {name} {version}, rank 0 has {given['versions'].get(name)}"
                raise OtherVersion(f"{message_}: all ranks need the same")
        folder = part_folder(Path(given["folder"]), self.group.rank)
        if given["state"] is not None:
            settle(folder, state=given["state"])
        self.files = open_part(folder, digest=given["digests"][self.group.rank])
        ranges = RowRanges(given["nodes"], self.group.size)
        arrays = checked_arrays(self.files, ranges, self.group.rank, columns=given["columns"])
        self.opened = RowPart(ranges, self.group.rank, arrays)
        self.changed = []
        self._forget_derived()
        self.encoders.read_inputs(given["encoder_inputs"])
        self.features = (
            None
            if given["model"] is None
            else stored_features(self.files, self.opened, feature_settings(given["model"]))
        )
        return self._about()

    def _about(self, **more: Any) -> Message:
        """Counts and hashes of the part, from which rank 0 knows the whole graph."""
        part = self.part
        level, prefixes, hashes = part.subtree_hashes()
        roles = {"training": TRAIN, "validation": VALIDATION, "test": TEST}
        counts = {name: int(np.count_nonzero(part.roles == role)) for name, role in roles.items()}
        counts |= {"nodes": int(np.count_nonzero(part.there)), "edge_ends": int(part.counts.sum())}
        counts["loops"] = int(part.loops(np.arange(part.num_rows)).sum())
        tensors = {"prefixes": torch.from_numpy(prefixes), "hashes": torch.from_numpy(hashes)}
        return Message({"counts": counts, "level": level, **more}, tensors)

    def find(self, message: Message) -> Message:
        numbers, part = message.array("numbers"), self.part
        found = part.find(list(message.fields["subjects"]))
        there = numbers[part.holds(numbers)]
        rows = np.unique(np.concatenate([there, np.array(list(found.values()), dtype=np.int64)])) - part.start
        names = [] if part.subjects is None else list(zip((rows + part.start).tolist(), part.names(rows), strict=True))
        return Message({"subjects": found, "names": names}, {"numbers": torch.from_numpy(there)})

    def has_edges(self, message: Message) -> Message:
        senders, receivers = message.array("ends")
        return Message({}, {"present": torch.from_numpy(self.part.has_edges(senders, receivers))})

    def remove(self, message: Message) -> Message:
        """Removes what a request names, in memory, and brings the features after it."""
        part = self.part
        fields = {name: message.array(name) for name in ("nodes", "edges", "full", "partial", "columns", "labels")}
        change = part.remove(Deletion(**fields), self.group)
        if self.features is None:
            raise InputError("no features are stored with the part")
        followed = follow_part(part, self.features, change, self.group)
        self.changed.append(followed)
        self._forget_derived()
        return self._about(removed=change.removed, affected=followed.affected, values=change.values)

    # -- the objective -------------------------------------------------------------------------------------------

    def prepare(self, message: Message) -> Message:
        """Features and losses for a model. Features that are there already are used."""
        given, part = message.fields, self.part
        settings = feature_settings(given)
        if self.features is None or self.features.settings != settings:
            self.features = propagate_part(part, settings, self.group)
        self.bias = bool(given["bias"])
        self._embed(message)
        self.losses = PartLosses(
            part,
            self.features,
            loss=as_loss(given["loss"]),
            classes=given["classes"],
            bias=self.bias,
            embeddings=self.embedded.of(self.features.train_rows),
        )
        self.encoders.forget_parts()
        return Message(
            {
                "defects": self.features.squared_defects(part),
                "size": float(np.square(self._bounds()).sum()),
                "squared_targets": self.losses.squared_targets,
            }
        )

    def _bounds(self) -> np.ndarray:
        features = self.features
        assert features is not None
        stays = self.part.roles[features.train_rows] == TRAIN
        bounds: np.ndarray = np.asarray(features.bounds)[stays] * np.abs(features.settings.scales)
        return bounds

    def row_norms(self, message: Message) -> Message:
        norms = np.linalg.norm(self._bounds(), axis=1) + message.fields["error"]
        squares = np.square(norms) + (1.0 if self.bias else 0.0)
        assert self.features is not None
        rows = self.features.train_rows
        embeddings = self.embedded.of(rows[self.part.roles[rows] == TRAIN])
        squares += 0.0 if embeddings is None else np.square(embeddings).sum(axis=1)
        return Message({"norms": [float(np.sqrt(squares).sum()), float(squares.sum())]})

    def _losses(self) -> PartLosses:
        if self.losses is None:
            raise InputError("no model is prepared")
        return self.losses

    def gradient(self, message: Message) -> Message:
        return Message({}, {"sums": self._losses().values_and_gradients(message.tensors["theta"])})

    def curvature(self, message: Message) -> Message:
        self._losses().set_curvature(message.tensors["theta"])
        return Message()

    def product(self, message: Message) -> Message:
        return Message({}, {"sums": self._losses().products(message.tensors["v"])})

    # -- scores --------------------------------------------------------------------------------------------------

    def _embed(self, message: Message) -> None:
        """The embeddings of training rows and of those that may be scored, by the encoders of a message, if any."""
        assert self.features is not None
        if "encoders" not in message.fields:
            self.embedded.forget()
            return
        rows = self.part.rows_with(message.fields["scored"])
        rows = rows[self._hashes(rows).argsort()[:MOST_SCORED].numpy()]
        classes = int(message.fields["classes"])
        self.embedded.compute(self.part, message, np.union1d(self.features.train_rows, rows), classes=classes)

    def _hashes(self, rows: np.ndarray) -> Tensor:
        return salted(node_hashes(torch.from_numpy(rows + self.part.start)), salt("scored"))

    def sample(self, message: Message) -> Message:
        hashes = self._hashes(self.part.rows_with(message.fields["role"])).sort().values
        return Message({}, {"hashes": hashes[: message.fields["most"]].clone()})

    def outputs(self, message: Message) -> Message:
        """Logits and targets of the sampled rows of this part."""
        part, features, theta = self.part, self.features, message.tensors["theta"]
        assert features is not None
        rows = part.rows_with(message.fields["role"])
        rows = rows[(self._hashes(rows) <= message.fields["last"]).numpy()]
        powers, columns = len(features.settings.powers), part.attributes.shape[1]
        self._embed(message)
        embeddings = self.embedded.of(rows)
        width = 0 if embeddings is None else embeddings.shape[1]
        weights = theta.numpy()[: (width + powers * columns) * message.fields["classes"]]
        first, weight = np.split(weights.reshape(-1, message.fields["classes"]), [width])
        logits = part_logits(part, features, weight.reshape(powers, columns, -1), rows, self.group)
        logits += theta.numpy()[weights.size :] if self.bias else 0.0
        logits += 0.0 if embeddings is None else embeddings @ first
        targets = torch.from_numpy(np.array(part.targets[rows]))
        return Message({}, {"logits": torch.from_numpy(logits), "targets": targets})

    # -- files ---------------------------------------------------------------------------------------------------

    def write(self, message: Message) -> Message:
        """Writes the part, with its features, into a new folder that no run names yet."""
        self.files = new_part(Path(message.fields["folder"]), self.group.rank, self.part, self.features)
        return Message({"digest": self.files.digest, "inputs": self.encoders.written_inputs()})

    def sweep(self, message: Message) -> Message:
        """Removes this rank's parts in other folders than the run's own."""
        sweep_parts(Path(message.fields["folder"]), self.group.rank, keep=message.fields["keep"])
        return Message()

    def stage(self, message: Message) -> Message:
        """Writes a journal of everything that deletions changed in memory since the part was opened."""
        assert self.files is not None
        changes = {name: (rows, np.asarray(getattr(self.part, name))[rows]) for name, rows in self._changed().items()}
        if self.features is not None and self.changed:
            arrays = self.features.arrays()
            places = np.unique(np.concatenate([one.training for one in self.changed]))
            last = [f"defect-{self.features.settings.hops}"] if self.features.settings.hops else []
            changes |= {name: (places, arrays[name][places]) for name in ("training", "bounds", *last)}
            for hop in range(len(self.features.hops)):
                rows = np.unique(np.concatenate([one.hops[hop] for one in self.changed]))
                changes |= {name: (rows, arrays[name][rows]) for name in (f"hop-{hop + 1}", f"defect-{hop + 1}")}
        digest = write_journal(self.files, changes, state=message.fields["state"]).digest
        return Message({"digest": digest, "inputs": self.encoders.written_inputs()})

    def _changed(self) -> dict[str, np.ndarray]:
        return self.part.changed_rows

    def settle(self, message: Message) -> Message:
        assert self.files is not None
        settle(self.files.folder, state=message.fields["state"])
        return Message()

    # -- checks --------------------------------------------------------------------------------------------------

    def check(self, message: Message) -> Message:
        """Hashes every record again, and propagates the attributes anew at the next `prepare`."""
        if not self.part.check_records():
            raise Mismatch(f"the part of rank {self.group.rank} is not that of its digest")
        self.features = None  # nothing that is stored beside the records is used
        self._forget_derived()
        return Message()

    def search(self, message: Message) -> Message:
        annex = Annex.from_dict(message.fields["annex"])
        found = find_deleted_in_part(annex, self.part, self.group, num_edges=message.fields["num_edges"])
        return Message({"found": found})

    # -- proofs of absence ---------------------------------------------------------------------------------------

    def slots(self, message: Message) -> Message:
        tree = slot_subtrees(self.part, bytes.fromhex(message.fields["key"]))
        top = tree.height
        tensors = {"prefixes": tree.prefixes[top], "hashes": tree.hashes[top].array()}
        return Message({"level": top}, {name: torch.from_numpy(array) for name, array in tensors.items()})

    def slot_path(self, message: Message) -> Message:
        """The lower end of an opening, from the rank whose range the number is in or follows."""
        number, part = int(message.fields["number"]), self.part
        if int(part.ranges.owners(np.array([number]))[0]) != self.group.rank:
            return Message()
        lower = lower_path(part, bytes.fromhex(message.fields["key"]), number)
        if lower is None:
            return Message({"present": True})
        return Message({"present": False, "level": lower.level, "path": [step.hex() for step in lower.path]})

    def positions(self, message: Message) -> Message:
        given = message.fields
        places = positions_in_part(self.part, bytes.fromhex(given["seed"]), int(given["height"]))
        return Message({}, {"positions": torch.from_numpy(places)})

    def counters(self, message: Message) -> Message:
        """What this rank has sent, by purpose, and the largest memory that it has had."""
        traffic = self.group.traffic
        memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        return Message({"sent": dict(traffic.sent), "calls": dict(traffic.calls), "memory": memory})
