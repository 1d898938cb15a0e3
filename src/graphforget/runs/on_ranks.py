"""Runs whose graph is in parts on several ranks: the same documents as on one machine, written by rank 0 alone.

RUN        the run directory: model, certificate, annex, ledger, and shards.json, which names the state of the parts
RUN.parts  beside it, on the machine of each rank: that rank's part of the graph, and the features of its rows

The rename that puts RUN in place is the commit. Before it, each rank has written a journal of its changes, or a new
part. After it, each rank carries its journal out. Whoever opens a run carries out what was committed, or drops it.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from graphforget.certificates.absence import AbsenceProof
from graphforget.certificates.audit_trees import check_text
from graphforget.certificates.issue import Filing
from graphforget.datasets.sharded_folder import read_manifest
from graphforget.distributed.checkpoint import Checkpoint
from graphforget.distributed.ranks import Ranks
from graphforget.errors import FloorMissed, InputError, Mismatch, Refused
from graphforget.graph.distributed_graph import DistributedGraph, GraphFacts
from graphforget.models.fixed import FixedPropagation
from graphforget.models.registry import build
from graphforget.models.stacked import Stacked
from graphforget.progress import Progress
from graphforget.request.request import Request
from graphforget.runs.answering import Answer, checked_ids, continued_at, first_answers
from graphforget.runs.history import history_of
from graphforget.runs.layout import (
    LEDGER,
    PROOFS,
    SHARDS,
    DamagedRun,
    check_free,
    check_writable,
    open_run,
    real_path,
    recover,
)
from graphforget.runs.locks import run_lock, run_locks
from graphforget.runs.pending import PendingRequests
from graphforget.runs.proofs import last_certificate, no_trees, proof_of, read_trees
from graphforget.runs.rank_proofs import RankCommit, check_rank_trees, rank_trees_of
from graphforget.runs.read import trained_of
from graphforget.runs.run_file import RunFile, read_absent, read_run_file, read_suppressed
from graphforget.runs.save import save_refusal, save_release
from graphforget.runs.shards import (
    parts_folder,
    read_shards,
    read_weights,
    shards_bytes,
    staged_parts,
    sweep_parts,
    written_parts,
)
from graphforget.runs.state import check_state
from graphforget.runs.verify import verify_run
from graphforget.runs.write import write_run
from graphforget.training.distributed_objective import fixed_features, settings_on_ranks
from graphforget.training.environment import versions
from graphforget.training.train import train
from graphforget.training.trained import Trained
from graphforget.unlearning.catalogue import AUTO
from graphforget.unlearning.outcome import Outcome
from graphforget.unlearning.plan import Plan, plan
from graphforget.unlearning.unlearn import unlearn
from graphforget.verification.verify import Verification

MODELS = ("sgc", "sign", "stacked-gcn", "stacked-gat", "stacked-gin", "stacked-sage")
METHODS = (AUTO, "newton")


def checkpoint_of(run: str | Path) -> Checkpoint:
    """The checkpoint of a computation whose result goes to `run`, beside it."""
    folder = real_path(run)
    return Checkpoint(folder.with_name(f".{folder.name}.graphforget-checkpoint"))


def _open(ranks: Ranks, folder: Path, facts: GraphFacts, digests: Sequence[str], **more: Any) -> DistributedGraph:
    if len(digests) != ranks.group.size:
        started = f"{ranks.group.size} ranks were started"
        raise InputError(f"{folder} has {len(digests)} parts, and {started}: start as many ranks as there are parts")
    given = {"folder": str(folder), "digests": list(digests), "nodes": facts.nodes, "columns": facts.num_columns}
    none = {"state": None, "model": None, "encoder_inputs": None}
    replies = ranks.call("open", given | {"versions": versions()} | none | more)
    return DistributedGraph.of(facts, ranks, replies)


def open_graph(ranks: Ranks, folder: str | Path) -> DistributedGraph:
    """A graph that `shard` wrote. Raises `InputError` if a part is missing or damaged, on any rank."""
    manifest = read_manifest(real_path(folder))
    graph = _open(ranks, real_path(folder), manifest.facts, manifest.digests)
    if graph.digest != manifest.digest:
        raise InputError(f"{folder} is damaged: its parts are not those of its digest")
    return graph


# -- training --------------------------------------------------------------------------------------------------------


def train_on_ranks(
    ranks: Ranks, data: str | Path, model: str | None, *, out: Path | None, force: bool = False, **settings: Any
) -> tuple[Trained, DistributedGraph]:
    """Trains on a graph in parts, and saves the run if `out` is given. A restarted group goes on where it was."""
    name = (model or MODELS[0]).lower()
    if name not in MODELS:
        raise InputError(f"the model is {model!r}, and on several ranks there are {', '.join(MODELS)}")
    if out is None:
        graph = open_graph(ranks, data)
        return train(graph, name, **settings), graph
    with run_lock(real_path(out)):
        exists = bool(ranks.group.restarts) and not force and (real_path(out) / SHARDS).is_file()
        if not exists:
            check_free(out, force=force)
        if (real_path(out) / LEDGER).exists():
            raise InputError(f"{out} holds a ledger of deletions, which would be lost: remove it yourself")
        checkpoint = checkpoint_of(out)
        graph = open_graph(ranks, data).with_checkpoint(checkpoint)
        trained = train(graph, name, **settings)
        if exists and not _is_saved(real_path(out), trained):  # it was there before this command
            checkpoint.remove()
            check_free(out)
        elif not exists:
            shards = written_parts(ranks, out, graph.facts)
            write_run(out, trained, graph, overwrite=force, extras={SHARDS: shards_bytes(shards)})
        sweep_parts(ranks, out)
        checkpoint.remove()
    return trained, graph


def _is_saved(place: Path, trained: Trained) -> bool:
    """Whether a run holds what the same recipe gives on the same graph: it was saved before a rank died."""
    run = read_run_file(place)
    recipes = [json.dumps(dataclasses.asdict(recipe), sort_keys=True) for recipe in (run.recipe, trained.recipe)]
    return run.graph_digest == trained.graph_digest and recipes[0] == recipes[1]


# -- reading ---------------------------------------------------------------------------------------------------------


def _read(ranks: Ranks, place: Path) -> tuple[Trained, DistributedGraph]:
    """The model of a run, and its graph on the ranks."""
    run = read_run_file(place)
    shards = read_shards(place, run)
    weights = read_weights(place, run)
    model = _feature_settings(run, shards.facts)
    folder = parts_folder(place) / shards.folder
    inputs = None if shards.encoder_inputs is None else list(shards.encoder_inputs)
    stored = {"state": shards.state, "model": model, "encoder_inputs": inputs}
    graph = _open(ranks, folder, shards.facts, shards.digests, **stored)
    trained = trained_of(run, weights, graph, None, None)
    suppressed = read_suppressed(place, run)
    trained = dataclasses.replace(trained, suppressed=suppressed, absent=read_absent(place, suppressed))
    if graph.digest != trained.graph_digest:
        raise DamagedRun(f"{place} is damaged: its graph is not the one that the model was trained on")
    return trained, graph


def _feature_settings(run: RunFile, facts: GraphFacts) -> dict[str, Any]:
    recipe = run.recipe
    if recipe.model not in MODELS:
        raise DamagedRun(f"run.json: the model is {recipe.model!r}, and on several ranks there are {', '.join(MODELS)}")
    module = build(recipe.model, columns=facts.num_columns, classes=facts.num_classes, seed=0, **recipe.options)
    assert isinstance(module, FixedPropagation | Stacked)
    return settings_on_ranks(fixed_features(module).propagated_settings)


# -- requests --------------------------------------------------------------------------------------------------------


def _check_method(method: str, trained: Trained) -> None:
    if method not in METHODS:
        raise InputError(f"the method is {method!r}, and on several ranks there are {' and '.join(METHODS)}")
    if not trained.recipe.sigma:
        raise InputError("the model was trained with sigma = 0, and on several ranks a release needs noise")


def _look_up(graph: DistributedGraph, requests: Sequence[Request]) -> None:
    """Asks the ranks for all nodes that the requests name, at once."""
    if any(one.edge_weights for one in requests):
        raise InputError("a request on several ranks cannot name edge weights, the graph has none")
    names = {
        name
        for one in requests
        for name in (*one.nodes, *one.attributes, *one.labels, *(n for edge in one.edges for n in edge))
    }
    graph.look_up(sorted(names, key=str))


def _deleted_subjects(graph: DistributedGraph, requests: Sequence[Request]) -> list[str]:
    """The subject ids of the nodes that the requests delete; without subject ids their numbers."""
    return sorted({str(graph.name_of(graph.row(node))) for one in requests for node in one.nodes})


def rehearse_on_ranks(ranks: Ranks, run: str | Path, requests: list[Request], **options: Any) -> Outcome:
    """The outcome of requests that is not saved."""
    with run_lock(real_path(run)), open_run(run) as place:  # a reader of parts would erase the journal of a writer
        trained, graph = _read(ranks, place)
        _check_method(options.get("method", AUTO), trained)
        _look_up(graph, requests)
        return unlearn(trained, graph, requests, **options)


def plan_on_ranks(ranks: Ranks, run: str | Path, requests: list[Request], **options: Any) -> tuple[Plan, Trained]:
    """The plan of requests, and the model. Nothing changes on any disk."""
    with run_lock(real_path(run)), open_run(run) as place:
        trained, graph = _read(ranks, place)
        _check_method(options.get("method", AUTO), trained)
        _look_up(graph, requests)
        return plan(trained, graph, requests, **options), trained


def answer_on_ranks(
    ranks: Ranks,
    run: str | Path,
    requests: list[Request],
    *,
    out: str | Path | None = None,
    request_ids: Sequence[str | None] | None = None,
    key: Ed25519PrivateKey | None = None,
    force: bool = False,
    progress: Progress | None = None,
    **options: Any,
) -> tuple[Answer, ...]:
    """What `answer` does, for a run whose graph is in parts.

    Requests without an id get one that is kept until they are answered. So a group that is restarted, or a command that
    is started again after all ranks died, answers them once.
    """
    target = real_path(run if out is None else out)
    if out is not None and target == real_path(run):
        raise InputError(f"{out} is the run itself: for its next state use --in-place (out=None) instead of --out")
    with run_locks(real_path(run), target):  # nobody changes the files of the parts of RUN while ranks have mapped them
        recover(target)
        pending = PendingRequests(target)
        ids = checked_ids(None, pending.ids(requests, request_ids, restarted=bool(ranks.group.restarts)), len(requests))
        named = dict(zip(ids, requests, strict=True))
        pending.write(named)
        try:
            answers = _answers(ranks, run, named, target, out, key, force or out is None, progress, options)
        except (InputError, Mismatch, Refused):  # any other error: a rank died, and the group starts again
            pending.remove()
            checkpoint_of(target).remove()
            raise
        checkpoint_of(target).remove()  # also of an answer that was complete before a rank died
        if ranks.group.may_restart:  # a rank may be killed before its process has ended
            pending.write(named, answered=True)
        else:
            pending.remove()
    return answers


def _answers(
    ranks: Ranks,
    run: str | Path,
    named: dict[str, Request],
    target: Path,
    out: str | Path | None,
    key: Ed25519PrivateKey | None,
    overwrite: bool,
    progress: Progress | None,
    options: dict[str, Any],
) -> tuple[Answer, ...]:
    with open_run(run) as place:
        history = history_of(place)
        trained, graph = _read(ranks, place)  # also carries out what was committed before a kill
        there = None if out is None else continued_at(target, history, lambda: trained)
        first = first_answers(named, (target, there), (Path(run), history), level=options.get("level"))
        fresh = {name: one for name, one in named.items() if name not in first}
        if fresh:
            check_writable(target, force=overwrite)
            check_state(place, trained, graph, history)
            shards = read_shards(place, read_run_file(place))
            stored = rank_trees_of(read_trees(place), history, graph)
    if fresh:
        _check_method(options.get("method", AUTO), trained)
        graph = graph.with_checkpoint(checkpoint_of(target))
        _look_up(graph, list(fresh.values()))
        trees = RankCommit(stored, _deleted_subjects(graph, list(fresh.values())))
        filing = Filing(history.head, key, trees.commit)
        try:
            outcome = unlearn(trained, graph, list(fresh.values()), progress=progress, filing=filing, **options)
        except FloorMissed as missed:
            save_refusal(Path(run), missed, graph, history, filing=filing, request_ids=list(fresh))
            raise
        after = staged_parts(ranks, shards) if out is None else written_parts(ranks, target, shards.facts)
        more = {SHARDS: shards_bytes(after), PROOFS: trees.to_bytes()}
        save_release(target, outcome, history, key=key, request_ids=list(fresh), overwrite=overwrite, more=more)
        ranks.call("settle", {"state": after.state})
        first |= {name: Answer(outcome.answer(), target, name, outcome) for name in fresh}
    sweep_parts(ranks, target if fresh or there is not None else run)
    return tuple(first[name] for name in named)


# -- verification ----------------------------------------------------------------------------------------------------


def verify_on_ranks(
    ranks: Ranks,
    run: str | Path,
    *,
    key: Ed25519PublicKey | None = None,
    head: str | None = None,
    before: str | Path | None = None,
) -> Verification:
    """What `verify_run` does: every rank hashes its records again and propagates its attributes anew."""

    def read(place: Path) -> tuple[Trained, DistributedGraph]:
        trained, graph = _read(ranks, place)
        ranks.call("check")
        return trained, graph

    with run_locks(*(real_path(one) for one in (run, before) if one is not None)):
        return verify_run(run, key=key, head=head, before=before, read=read, check_absence=check_rank_trees)


def prove_absence_on_ranks(ranks: Ranks, run: str | Path, subject: str) -> AbsenceProof:
    """What `prove_absence` does, for a run whose graph is in parts."""
    check_text(subject)
    with run_lock(real_path(run)), open_run(run) as place:
        history = history_of(place)
        _, graph = _read(ranks, place)
        trees, certificate = rank_trees_of(read_trees(place), history, graph), last_certificate(history)
        if trees is None or certificate is None:
            raise no_trees(run)
        return proof_of(subject, trees.opening(graph, subject), certificate)


def counters(ranks: Ranks) -> list[dict[str, Any]]:
    """What each rank has sent and the largest memory that it has had: private, as a plan."""
    return [dict(reply.fields) for reply in ranks.call("counters")]
