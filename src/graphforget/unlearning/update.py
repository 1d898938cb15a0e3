"""`gf.update`: a model goes to the next state of its graph, which may have grown, been corrected, or lost something."""

from __future__ import annotations

from itertools import chain
from typing import Any

import torch

from graphforget.certificates.document import READMIT
from graphforget.certificates.issue import Filing
from graphforget.certificates.levels import Level
from graphforget.errors import InputError, Refused
from graphforget.graph.differences import gained
from graphforget.graph.graph import Graph
from graphforget.graph.schema import MARK, is_typed
from graphforget.progress import Progress
from graphforget.request.hashed_items import HashedItems, beyond, count_items
from graphforget.request.kinds import in_words
from graphforget.request.request import Request
from graphforget.request.spelling import mentions
from graphforget.training.recipe import UPDATE
from graphforget.training.trained import Trained
from graphforget.unlearning.catalogue import AUTO
from graphforget.unlearning.outcome import Outcome
from graphforget.unlearning.selection import NEWTON, RETRAIN, Choice, Otherwise
from graphforget.unlearning.settings import Settings
from graphforget.validation import check_instance

LONGEST_REASON = 500


# Longer than 50 lines because of its signature and its documentation.
def update(
    trained: Trained,
    graph: Graph,
    new_graph: Graph,
    *,
    method: str = AUTO,
    epsilon: float | None = None,
    delta: float | None = None,
    level: Level | None = None,
    otherwise: Otherwise = "retrain",
    readmit: str | None = None,
    readmit_request: Request | None = None,
    trust_ids: bool = False,
    seed: int | None = None,
    noise_seed: int | None = None,
    device: str = "cpu",
    progress: Progress | None = None,
    filing: Filing | None = None,
    **options: Any,
) -> Outcome:
    """Brings a model to the next state of its graph: new nodes, edges, attributes and labels, corrections, removals.

    A strongly convex model moves by Newton steps from where it stands, a stacked one trains the encoders of the parts
    that changed again, and every other model is retrained. The certificate is of the same kind as for a request,
    against training on the new graph, and the release counts like any other.

    Args:
        trained: The model, as `train`, `adopt` or an earlier outcome gives it.
        graph: The graph that the model was trained on, or the graph of the last outcome.
        new_graph: Its next state, with its own split. Nodes are matched by their subject ids, or by their numbers if
            there are no subject ids (`Graph.next_state`).
        method: "newton", "retrain" or "auto".
        epsilon: By default the epsilon that was fixed at training.
        delta: By default the delta that was fixed at training.
        level: The lowest acceptable level.
        otherwise: "retrain" or "refuse", if the level cannot be reached or the method fails.
        readmit: Why data may come back that a request deleted. The reason is public: it stands in the certificate and
            the ledger, so it may name nobody who comes back. Without it such data is refused.
        readmit_request: What may come back; the rest is refused. Without it, everything that the new graph holds may.
        trust_ids: Whether to go on if the ids of the new graph look like those of other people: under half of the known
            subjects are in it, or it has neither subject ids nor numbers, and something was deleted before.
        seed: The seed of a retraining, if it is to be another one.
        noise_seed: Makes the noise reproducible, and therefore removable.
        device: The torch device to compute on.
        progress: A function that is called with a stage, the steps done and their total.
        **options: Options of the method.

    Returns:
        The outcome, with the certificate. `outcome.graph` is the new graph with stable node numbers.

    Raises:
        InputError: The arguments do not fit together.
        Refused: Deleted data would come back, or the level cannot be reached. Nothing is released.

    Example:
        >>> import graphforget as gf
        >>> graph = gf.load("patients")
        >>> smaller = graph.without(gf.Request(nodes=["patient-0017", "patient-0018"]))
        >>> outcome = gf.update(gf.train(smaller, "sgc"), smaller, graph)
        >>> outcome.method, outcome.level, outcome.graph.num_nodes - smaller.num_nodes
        ('newton', 'certified', 2)
    """
    settings = Settings(
        method=method,
        epsilon=epsilon,
        delta=delta,
        level=level,
        otherwise=otherwise,
        seed=seed,
        noise_seed=noise_seed,
        device=device,
        progress=progress,
        filing=filing,
        options=options,
    )
    after = next_state(trained, graph, new_graph, settings.named, trust_ids=trust_ids)
    returning = returning_items(trained, graph, after, readmit, readmit_request)
    reason = {READMIT: readmit.strip()} if readmit is not None and returning is not None else {}
    return settings.release(
        trained,
        graph,
        None,
        retained=after,
        returning=returning,
        notes=() if returning is None else (f"the update brought back {in_words(count_items(returning))}",),
        also_chosen={UPDATE: True} | reason,
    )


def next_state(trained: Trained, graph: Graph, new_graph: Graph, named: Choice | None, *, trust_ids: bool) -> Graph:
    """The new graph with stable node numbers.

    Raises:
        InputError: The named method cannot update this model, or the new graph is no next state of the graph.
    """
    if named is not None and named.method.name not in (NEWTON.name, RETRAIN.name):
        name = named.method.name
        raise InputError(f"method {name!r} cannot update a graph, only {NEWTON.name!r} and {RETRAIN.name!r} can")
    (named.method if named else RETRAIN).check_model(trained, graph)
    check_instance(new_graph, Graph, "new graph")
    after = graph.next_state(new_graph)
    if not trust_ids:
        _check_ids(trained, graph, after)
    return after


def _check_ids(trained: Trained, graph: Graph, after: Graph) -> None:
    """Raises `InputError` if ids could have come to mean other people: then nobody knows who was deleted."""
    if graph.subject_ids is not None:
        known = sum(map(graph.row_of_subject.__contains__, after.subject_ids or ()))
        if 2 * known < graph.num_nodes:
            raise InputError(
                f"the new graph has only {known:,} of the {graph.num_nodes:,} known subjects: if its ids are written "
                "as before, say so (--trust-ids)"
            )
        return
    lost = trained.never_again is not None or graph.free_number > graph.num_nodes
    if lost and torch.equal(after.numbers, torch.arange(after.num_nodes)):
        raise InputError(
            "the new graph has no subject ids and its nodes are numbered by their rows, which may have moved since "
            "something was deleted: give node numbers, or say that the rows are numbers (--trust-ids)"
        )


def returning_items(
    trained: Trained, graph: Graph, after: Graph, readmit: str | None, named: Request | None = None
) -> Request | None:
    """What a request deleted and the new graph holds again.

    Raises:
        Refused: There is such data and no reason for it, or more of it than is `named`.
        InputError: The reason names somebody, or `named` names something that was not deleted.
    """
    if readmit is not None and (not readmit.strip() or len(readmit) > LONGEST_REASON or not readmit.isprintable()):
        raise InputError(f"the reason to readmit must be a text of up to {LONGEST_REASON} characters in one line")
    if named is not None and readmit is None:
        raise InputError("a request says what to readmit, and there is no reason to readmit it (--readmit)")
    deleted: HashedItems = trained.never_again or HashedItems()
    if named is not None and not deleted.covers(HashedItems.of(after, named, deleted.key)):
        raise InputError("the request to readmit names something that no request deleted")
    returning = _returning(deleted, graph, after)
    if returning is None:
        return None
    left = returning if readmit is None else None
    if named is not None:
        left = _returning(deleted.without(after, named), graph, after)
    if left is not None:
        how = "give a reason to readmit it (--readmit)" if readmit is None else "name it in the request to readmit"
        raise Refused(
            f"the new graph would bring back {in_words(count_items(left))}, so nothing was changed: take that out, or "
            f"{how}"
        )
    ends = chain.from_iterable((*returning.edges, *returning.edge_weights))
    names = {str(name) for name in (*returning.nodes, *returning.labels, *returning.attributes, *ends)}
    names |= {name.partition(MARK)[2] for name in names} if is_typed(after) else set()
    if any(mentions(readmit or "", name) for name in names):
        raise InputError("the reason to readmit is public, and it names somebody who would come back")
    return returning


def deleted_again(trained: Trained, graph: Graph, after: Graph) -> Request | None:
    """What a request deleted and the new graph holds again, whether it may or not; None if that is nothing."""
    return None if trained.never_again is None else _returning(trained.never_again, graph, after)


def _returning(deleted: HashedItems, graph: Graph, after: Graph) -> Request | None:
    """What was deleted and is in the new graph, but for what is in the old one: that is of others of a similar name.

    So only what the new graph has gained is searched.
    """
    found = deleted.found_in(after, gained(graph, after))
    there = None if found is None else deleted.found_in(graph)
    return found if found is None or there is None else beyond(found, there)
