"""The model card of a run directory: one Markdown page about the released model and its data.

It is public. It holds counts of the public ledger, settings, sizes of the retained graph and scores of the released
weights, and nothing that depends on what was deleted in another way (docs/maths.md, section 12).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from importlib import resources
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from jinja2 import Environment, StrictUndefined

from graphforget.certificates.chain import REFUSED
from graphforget.certificates.conditions import sentence
from graphforget.certificates.document import Certificate
from graphforget.certificates.releases import Composition, compose_since_training
from graphforget.errors import InputError, Mismatch
from graphforget.graph.graph import Graph
from graphforget.json_files import parse_json
from graphforget.models.items import GRAPH, LINK, NODE
from graphforget.runs.history import History, history_of, read_history
from graphforget.runs.layout import open_run
from graphforget.runs.read import read_graph
from graphforget.runs.verify import verify_run
from graphforget.training.score_names import SHOWN, shown_score, stored_scores
from graphforget.verification.verify import Verification

LIMITS = (
    "The scores are those of the test part of one graph. Nothing is known of other graphs, or of groups within it.",
    "Sizes are those of the retained graph, so somebody with an earlier card can see how much was deleted since.",
    "A certificate speaks of the weights. It says nothing on whether predictions are right, fair or lawful.",
)
NOISE = "The released weights carry noise. A model with less data loses more accuracy to it."
# In Markdown these begin markup; text of the operator and names of classes are shown as they are.
SPECIAL = str.maketrans({character: f"\\{character}" for character in "\\`*_[]|#"} | {"<": "&lt;", ">": "&gt;"})


def card_content(
    run: str | Path,
    *,
    key: Ed25519PublicKey | None = None,
    intended_use: str | None = None,
    data_source: str | None = None,
    **own: Any,
) -> dict[str, Any]:
    """What the card of a run directory says, which is verified now. It names nobody, and is public.

    Args:
        run: The run directory. It has answered a request.
        key: The public key that must have signed.
        intended_use: What the model is for, in the words of its operator.
        data_source: Where the data comes from, in the words of its operator.
        **own: The user's own module and loss, as `verify_run` takes them.

    Returns:
        The content of the card, as JSON can hold it.

    Raises:
        InputError: The run has answered no request.
        Mismatch: The verification fails.
    """
    verification, history, graph = _verified(run, key=key, **own)
    answered = [entry for entry in history.entries if entry.level != REFUSED]
    public = parse_json(answered[-1].answer)
    certificate = Certificate.from_dict(public["certificate"])
    delta = float(certificate.settings["delta"])
    composed = compose_since_training(history.ledger.releases, history.ledger.certificates, delta=delta)
    try:
        return {
            "audience": "public",
            "id": certificate.id,
            "made": certificate.made,
            "model": dict(certificate.model),
            "guarantee": _guarantee(certificate, composed, requests=len(answered)),
            "checks": [check.name for check in verification.checks],
            **{f"test_{name}": dict(score) for name, score in stored_scores(public).items()},
            "intended_use": intended_use,
            "data": _data_sheet(certificate, graph) | {"source": data_source},
            "limits": _limits(certificate),
            "versions": dict(certificate.environment),
        }
    except (KeyError, TypeError, ValueError, AttributeError) as error:  # a forged answer can lack any field
        raise Mismatch(f"the last answer of {run} cannot be shown: {type(error).__name__}: {error}") from error


def _verified(run: str | Path, *, key: Ed25519PublicKey | None, **own: Any) -> tuple[Verification, History, Graph]:
    """The verification of a run, with the history and the graph of the state that was verified."""
    head = _head(run)
    verification = verify_run(run, key=key, **own)
    with open_run(run) as place:
        history, graph = history_of(place), read_graph(place)
    if history.head != head:
        raise InputError(f"{run} answered a request in the meantime, so this state was not verified: try again")
    return verification, history, graph


def _head(run: str | Path) -> str | None:
    """The head of the ledger; None if it cannot be read, which the verification says better."""
    try:
        return read_history(run).head
    except (InputError, Mismatch):
        return None


def _guarantee(certificate: Certificate, composed: Composition, *, requests: int) -> dict[str, Any]:
    return {
        "level": certificate.level,
        "meaning": certificate.definition,
        "statement": certificate.statement,
        "conditions": [sentence(name) for name in certificate.conditions],
        "epsilon_so_far": composed.epsilon,
        "no_epsilon_because": composed.reason,
        "delta": composed.delta,
        "epsilon_of_the_budget": certificate.epsilon,
        "sigma": certificate.sigma,
        "requests_answered": requests,
        "releases": composed.releases,
        "releases_left": certificate.releases_left,
        "signed": certificate.signature is not None,
    }


def _limits(certificate: Certificate) -> list[str]:
    not_covered = [f"Not covered: {line}." for line in certificate.not_covered]
    return [*LIMITS, *([NOISE] if certificate.sigma else []), *not_covered]


def _data_sheet(certificate: Certificate, graph: Graph) -> dict[str, Any]:
    """Sizes of the retained graph."""
    first = str(certificate.model["name"]).split("-")[0]
    return {
        "items": first if first in (LINK, GRAPH) else NODE,
        "nodes": graph.num_nodes,
        "edges": graph.num_edges,
        "directed": graph.directed,
        "attributes": graph.num_columns,
        "outputs": graph.num_classes,
        "targets": graph.target_kind,
        "training_items": certificate.training_nodes,
    }


def card_markdown(content: Mapping[str, Any]) -> str:
    """The card as Markdown, with the front matter that model hubs read."""
    environment = Environment(undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    environment.filters |= {"plain": _plain, "yaml": json.dumps, "number": lambda value: f"{value:.3g}"}
    source = resources.files(__package__).joinpath("card.md.j2").read_text(encoding="utf-8")
    scores = [
        (SHOWN[name], shown_score(name, score["released"]))
        for name, score in stored_scores(content).items()
        if score["released"] is not None
    ]
    return environment.from_string(source).render(card=content, scores=scores).strip() + "\n"


def _plain(text: object) -> str:
    """Text on one line that Markdown shows as it is."""
    return " ".join(str(text).split()).translate(SPECIAL)
