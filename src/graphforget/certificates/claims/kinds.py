"""The kinds of claims by their ids in certificates."""

from __future__ import annotations

from typing import Any

from graphforget.certificates.claims.base import Claim
from graphforget.certificates.claims.combined import Combined
from graphforget.certificates.claims.empirical import Empirical
from graphforget.certificates.claims.exact import Exact
from graphforget.certificates.claims.objective_noise import ObjectiveNoise
from graphforget.certificates.claims.own_training import OwnTraining
from graphforget.certificates.claims.paper_bound import PaperBound
from graphforget.certificates.claims.residual_ball import ResidualBall
from graphforget.errors import InputError

KINDS: dict[str, type[Claim]] = {
    claim.kind: claim for claim in (Exact, OwnTraining, ResidualBall, PaperBound, ObjectiveNoise, Empirical, Combined)
}


def read_claim(content: Any) -> Claim:
    """Reads the result of `Claim.to_dict`. Raises `InputError` for anything else."""
    kind = content.get("kind") if isinstance(content, dict) else None
    if not isinstance(kind, str) or kind not in KINDS:
        raise InputError(f"the claim is of kind {kind!r}, one of {', '.join(KINDS)} is needed")
    try:
        if kind == Combined.kind:
            return Combined.from_parts(content, read_claim)
        return KINDS[kind].from_dict(content)
    except (TypeError, ValueError, AttributeError, OverflowError) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(f"the claim of kind {kind!r} cannot be read: {error}") from error
