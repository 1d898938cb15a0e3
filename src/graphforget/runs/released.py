"""What a run directory has released: the public model, and the guarantee of all releases together."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from graphforget.certificates.document import Certificate
from graphforget.certificates.releases import Composition, compose_since_training
from graphforget.errors import InputError
from graphforget.graph.distributed_graph import without_rows
from graphforget.graph.graph import Graph
from graphforget.models.constructions import OwnModel
from graphforget.runs.history import read_history
from graphforget.runs.layout import CERTIFICATE, LARGEST, RELEASED, SHARDS, open_run
from graphforget.runs.read import read_run, trained_of
from graphforget.runs.run_file import read_run_file
from graphforget.runs.shards import read_shards, read_weights
from graphforget.runs.tensors import metadata_of, read_tensors
from graphforget.training.losses import Loss, LossFunction
from graphforget.training.state import same_tensors
from graphforget.training.trained import Trained


def releases_so_far(folder: str | Path, *, delta: float) -> Composition:
    """The guarantee of all releases of a run together.

    Args:
        folder: The run directory.
        delta: The delta at which to compute epsilon.

    Returns:
        The composition of all releases since the model was last retrained.

    Raises:
        Mismatch: The ledger does not agree with its certificates.
    """
    ledger = read_history(folder).ledger
    return compose_since_training(ledger.releases, ledger.certificates, delta=delta)


def load_released(
    folder: str | Path, *, model: OwnModel | None = None, loss: Loss | LossFunction | None = None
) -> tuple[Trained, Graph]:
    """Reads the released model of a run directory.

    Args:
        folder: The run directory.
        model: An instance of the user's own module, or the result of `stacked` or `boosted`, if the run has one.
        loss: The user's own loss, if the run has one.

    Returns:
        The model with the noise of its certificate, and its graph.

    Raises:
        InputError: The run cannot be read, or has released nothing.
    """
    released, graph, _ = certified_release(folder, model=model, loss=loss)
    return released, graph


def certified_release(
    folder: str | Path, *, model: OwnModel | None = None, loss: Loss | LossFunction | None = None
) -> tuple[Trained, Graph, Certificate]:
    """What `load_released` gives, with the certificate of these weights: the run may have moved on since."""
    with open_run(folder) as place:
        return _read_release(place, model=model, loss=loss)


def _read_release(place: Path, **own: Any) -> tuple[Trained, Graph, Certificate]:
    trained, graph = read_run(place, **own)
    theta, certificate = released_weights(place, trained), Certificate.read(place / CERTIFICATE)
    return trained.released(theta, graph, noise=float(certificate.sigma or 0.0)), graph, certificate


def released_module(folder: str | Path) -> tuple[nn.Module, Certificate]:
    """The module of the released model of a run directory, and the certificate of its weights.

    It needs no graph, so the graph may be in parts.

    Raises:
        InputError: The run cannot be read, or has released nothing.
    """
    with open_run(folder) as place:
        run = read_run_file(place)
        if SHARDS not in run.sha256:
            released, _, certificate = _read_release(place)
            return released.module, certificate
        trained = trained_of(run, read_weights(place, run), without_rows(read_shards(place, run).facts), None, None)
        released = trained.with_weights(released_weights(place, trained))
        return released.module, Certificate.read(place / CERTIFICATE)


def released_weights(folder: Path, trained: Trained) -> Tensor:
    """The released weights of `trained`. Its encoders must be released with them as they are, and nothing else."""
    try:
        tensors, content = read_tensors(folder / RELEASED, largest=LARGEST)
    except FileNotFoundError as error:
        raise InputError(f"{folder} holds no released weights: it has not answered any request") from error
    theta = tensors.pop("theta", None)
    if theta is None or theta.dtype != torch.float64 or theta.shape != trained.theta.shape:
        raise InputError(f"{folder / RELEASED} does not hold as many weights as the model has, in float64")
    named = {"certificate": Certificate.read(folder / CERTIFICATE).id}
    if not same_tensors(tensors, trained.released_state) or metadata_of(content) not in ({}, named):
        raise InputError(f"{folder / RELEASED} holds something else beside the weights than the model releases")
    return theta
