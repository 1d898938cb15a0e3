"""Trains again and compares, for claims that something is what training gives."""

from __future__ import annotations

from collections.abc import Callable

from torch import nn

from graphforget.errors import InputError, Mismatch, Refused
from graphforget.progress import Progress
from graphforget.training.boosting import with_network
from graphforget.training.encoders import with_replayed_encoders
from graphforget.training.environment import environment
from graphforget.training.retraining import replayed
from graphforget.training.state import same_state
from graphforget.verification.evidence import Evidence


def check_by_replay(
    evidence: Evidence,
    *,
    model: Callable[[], nn.Module] | None = None,
    device: str = "cpu",
    progress: Progress | None = None,
) -> None:
    """Trains what is claimed to be exact again: the model, the encoders, or the network from its released start.

    Raises:
        Mismatch: Training gives other weights.
        InputError: Nothing in the claim can be replayed.
        Refused: The environment is not the one of the training.
    """
    certificate, trained, graph = evidence.certificate, evidence.trained, evidence.graph
    if not certificate.claim.replayable:
        raise InputError(f"a replay is for level 'exact', and this certificate has {certificate.level!r}")
    recorded, here = trained.recipe.environment, environment(device=device)
    others = [name for name in {**recorded, **here} if recorded.get(name) != here.get(name)]
    if others:
        there, now = recorded.get(others[0]), here.get(others[0])
        message = f"the training ran with {others[0]} = {there}, this is {now}"
        raise Refused(f"{message}, and bits are the same only in the same environment")
    if certificate.level == "exact":
        again = replayed(trained, graph, model=model, device=device, progress=progress)
    elif trained.is_stacked:
        again = with_replayed_encoders(trained, graph, device=device, progress=progress)
    elif evidence.released is None:
        raise InputError("a replay of the network needs the released weights that it was trained from")
    else:
        again = with_network(trained, evidence.released, graph, device=device, progress=progress)
    if not same_state(again, trained):
        doubt = ", or the training function is not deterministic" if trained.recipe.adopted else ""
        raise Mismatch(f"training again on the retained graph gives other weights{doubt}")
