"""A run directory: a trained model and its graph on disk, in safe formats, written whole or not at all.

run.json             recipe, what training reached, versions
weights.safetensors  the flat parameters in float64
graph.safetensors    the graph's tensors
graph.json           its names

After a deletion also what `records.py` keeps of it.
"""

from __future__ import annotations

import copy
import dataclasses
import hashlib
import json
import math
import os
import re
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import save_file
from torch import Tensor, nn

from graphforget.certificates.gaussian import release_ratio
from graphforget.certificates.ledger import LARGEST as LEDGER_LARGEST
from graphforget.checks import LARGEST_STORED, checked_edges, is_symmetric, read_fields
from graphforget.doctor import data_carriers
from graphforget.environment import versions
from graphforget.errors import InputError, OtherVersion
from graphforget.graph import Graph
from graphforget.locks import holding, steady, turn
from graphforget.losses import Loss, LossFunction, as_loss, assumed_convex, captured_by_loss, is_recorded
from graphforget.models.parameters import assign, flatten, trainable
from graphforget.models.reach import Reach
from graphforget.models.registry import MODELS, build, count_parameters, is_affine
from graphforget.models.sharded import Sharded
from graphforget.safe_files import read_bytes, read_tensors
from graphforget.safe_json import LARGEST as JSON_LARGEST
from graphforget.safe_json import parse_json, read_json
from graphforget.trained import Forgotten, Recipe, Trained, new_salt

FORMAT = 4
LARGEST = 2**30  # bytes of one file of tensors
WIDEST = 2**24  # columns or classes of a graph that is read
EARLIER_FORMAT = 3  # strongly convex models of it can be read and go on
_FILES = ("weights.safetensors", "graph.safetensors", "graph.json")
CERTIFICATE, RELEASED, OUTCOME, ANNEX = ("certificate.json", "released.safetensors", "outcome.json", "annex.json")
LEDGER, EARLIER_LEDGER = "ledger.sqlite", "ledger-1.sqlite"  # the second of an earlier format, kept as it was
DATABASES = {f"{name}{suffix}" for name in (LEDGER, EARLIER_LEDGER) for suffix in ("", "-wal", "-shm")}
OWN = {"run.json", *_FILES, CERTIFICATE, RELEASED, OUTCOME, ANNEX, *DATABASES}
LIMITS = {  # bytes of each file; what is larger is neither written nor read
    "run.json": 2**24,
    **dict.fromkeys(("weights.safetensors", "graph.safetensors", RELEASED), LARGEST),
    **dict.fromkeys(("graph.json", CERTIFICATE, OUTCOME), JSON_LARGEST),
    ANNEX: 2**29,
    **dict.fromkeys((LEDGER, EARLIER_LEDGER), LEDGER_LARGEST),
}
_SPARSE = ("x.crow", "x.columns", "x.values")
_TENSORS = {
    "edge_index": torch.int64,
    "y": torch.int64,
    "train_mask": torch.bool,
    "val_mask": torch.bool,
    "test_mask": torch.bool,
    "numbers": torch.int64,
}


class Damaged(InputError):
    """A run directory is not what was written."""


@dataclass(frozen=True)
class _RunFile:
    """run.json. What follows from the rest is written for people and not read."""

    format: int
    recipe: Recipe
    reach: Reach
    obstacles: tuple[str, ...]
    strongly_convex: bool
    converged: bool
    objective: float
    gradient_norm: float
    graph_digest: str
    seconds: float
    noise: float
    history: tuple[Forgotten, ...]
    sha256: dict[str, Any]
    releases: tuple[float, ...] = ()  # from here on missing in the earlier format
    graph_salt: str = field(default_factory=lambda: new_salt().hex())
    notes: tuple[str, ...] = ()
    audience: Any = None
    parameters: Any = None
    certifiable: Any = None
    gradient_norm_over_mu: Any = None
    releases_left: Any = None
    versions: Any = None

    def __post_init__(self) -> None:
        numbers = (self.gradient_norm, self.seconds, self.noise, *self.releases)
        if min(numbers) < 0 or max(numbers) > LARGEST_STORED:
            raise InputError(f"run.json holds a number that is negative or over {LARGEST_STORED:g} where none can be")


@dataclass(frozen=True)
class _GraphFile:
    """graph.json."""

    num_classes: int
    directed: bool
    subject_ids: tuple[str, ...] | None
    column_names: tuple[str, ...] | None
    class_names: tuple[str, ...] | None
    name: str
    digit_ids: bool
    num_columns: int


def save(folder: str | Path, trained: Trained, graph: Graph, *, force: bool = False) -> Path:
    """Writes `trained` and `graph` into `folder`. An existing folder is an `InputError` unless `force`."""
    with turn(_real(folder)):
        check_free(folder, force=force)
        if (_real(folder) / LEDGER).exists():
            raise InputError(
                f"{folder} holds a ledger of deletions, which training anew would lose: remove it yourself"
            )
        return write(folder, trained, graph, over=force)


def write(
    folder: str | Path,
    trained: Trained,
    graph: Graph,
    *,
    over: bool,
    extras: Mapping[str, bytes] | None = None,
    finish: Callable[[Path], None] | None = None,
) -> Path:
    """Puts a run directory in place, with further files; the caller has its turn and has called `check_free`.

    Everything goes to a temporary folder beside it that is then renamed, so a crash leaves the old state or the new.
    `finish` writes what is no plain file into the temporary folder. Unless `over`, a folder that has come to be there
    in the meantime is left alone.
    """
    named, folder = folder, _real(folder)
    _clear(folder)
    if trained.graph_digest != graph.digest:
        raise InputError("the graph is not the one that this model was trained on")
    if trained.noise:
        raise InputError("these are released weights with noise, a run directory keeps those without it")
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        staging = Path(tempfile.mkdtemp(prefix=f".{folder.name}.graphforget-{os.getpid()}-", dir=folder.parent))
    except OSError as error:
        raise InputError(f"{folder} cannot be written: {error}") from error
    try:
        with holding(staging):
            _write(staging, trained, graph, extras or {}, finish)
            staging.chmod(0o777 & ~_umask())
            with steady(folder):
                if folder.exists() and not over:
                    raise InputError(f"{named} was written by somebody else in the meantime and is left alone")
                _replace(folder, staging, named)
    except (OSError, SafetensorError) as error:
        shutil.rmtree(staging, ignore_errors=True)
        raise InputError(f"{named} cannot be written: {' '.join(str(error).split())}") from error
    except BaseException:
        shutil.rmtree(staging, ignore_errors=True)
        raise
    return folder


def _replace(folder: Path, staging: Path, named: str | Path) -> None:
    """The new state takes the old one's place."""
    if not folder.exists():
        staging.rename(folder)
        return
    old = _old(folder)
    folder.rename(old)
    try:
        staging.rename(folder)
    except BaseException:
        _restore(folder)
        raise
    shutil.rmtree(old, ignore_errors=True)
    if old.exists():
        raise InputError(f"{named} is written, but its old state could not be removed and is still at {old}")


def inside_run(path: str | Path) -> bool:
    """Whether the path lies within a run directory."""
    return any((parent / "run.json").is_file() for parent in Path(path).resolve().parents)


def check_free(folder: str | Path, *, force: bool = False) -> None:
    """Refuses a place that `save` could not or should not write to."""
    named, folder = folder, _real(folder)
    with steady(folder):
        _restore(folder)
    if folder.exists() and not force:
        raise InputError(f"{named} exists already, choose another place or overwrite it with --force (force=True)")
    if folder.exists() and not (folder / "run.json").is_file():
        raise InputError(f"{named} is not a run directory and is not overwritten")
    if folder.exists() and strangers(folder):
        raise InputError(f"{named} holds {strangers(folder)[0]!r}, which is not the run's own: move it elsewhere first")
    if inside_run(folder):
        raise InputError(f"{named} lies inside another run directory, choose a place outside")
    anchor = next(parent for parent in folder.parents if parent.exists())
    if not anchor.is_dir() or not os.access(anchor, os.W_OK):
        raise InputError(f"{anchor} is not a folder that can be written to")


def load(
    folder: str | Path, *, model: nn.Module | None = None, loss: Loss | LossFunction | None = None
) -> tuple[Trained, Graph]:
    """Reads a run directory. A model or a loss that is not built in cannot be stored safely: hand it over again."""
    with settled(folder) as place:
        return read(place, model=model, loss=loss)


@contextmanager
def settled(folder: str | Path) -> Iterator[Path]:
    """Where the state of a run directory is, and stays while somebody reads it."""
    folder = _real(folder)
    with steady(folder, shared=True):
        if folder.exists():  # what a writer left that was killed before it cleared up may hold what was forgotten
            shutil.rmtree(_old(folder), ignore_errors=True)
        killed_between_renames = not folder.exists() and _old(folder).is_dir()
        yield _old(folder) if killed_between_renames else folder


def read(
    folder: Path, *, model: nn.Module | None = None, loss: Loss | LossFunction | None = None
) -> tuple[Trained, Graph]:
    """What `load` does, for a caller that has settled where the state is."""
    try:
        run, graph, weights = _files(folder)
    except FileNotFoundError as error:
        if not (folder / "run.json").exists():
            raise InputError(f"{folder} is not a run directory: {folder / 'run.json'} is missing") from error
        raise Damaged(f"{folder} is not a run directory: it is damaged, {error.filename} is missing") from error
    except (OSError, RuntimeError) as error:
        raise Damaged(f"{folder} cannot be read: {' '.join(str(error).split())}") from error
    try:
        trained = _trained(run, weights, graph, model, loss)
        digest = graph.digest
        if run.format == EARLIER_FORMAT:
            if graph.digest_of_format_2 != trained.graph_digest:
                raise Damaged(f"{folder} is damaged: its graph is not the one that the model was trained on")
            trained = _of_earlier_format(trained, graph, released=(folder / CERTIFICATE).exists())
        value = trained.objective(graph).value(trained.theta)
    except InputError:
        raise
    except Exception as error:  # damaged tensors and a model of one's own can raise any exception there is
        raise Damaged(f"{folder} is damaged: {type(error).__name__}: {' '.join(str(error).split())}") from error
    if digest != trained.graph_digest:
        raise Damaged(f"{folder} is damaged: its graph is not the one that the model was trained on")
    if not math.isclose(value, trained.objective_value, rel_tol=1e-6):
        told = f"{folder} does not fit together: the objective is {value:g} instead of {trained.objective_value:g}"
        if model is None and loss is None:
            raise Damaged(told)
        raise InputError(f"{told}, so the model or the loss handed over is not the one that was trained")
    return trained, graph


def _files(folder: Path) -> tuple[_RunFile, Graph, dict[str, Tensor]]:
    """What the files hold: of the types and sizes that they must have, and with the checksums in run.json."""
    try:
        content = read_json(folder / "run.json", what="run.json", largest=LIMITS["run.json"])
        format = content.get("format") if isinstance(content, dict) else None
        if type(format) is not int or format not in (FORMAT, EARLIER_FORMAT):
            message = f"{folder} has format {str(format)[:80]}"
            raise OtherVersion(f"{message}, this version reads format {FORMAT}")
        run = read_fields(_RunFile, content, "run.json")
        if run.format == EARLIER_FORMAT and not run.strongly_convex:
            message = f"{folder} is a run of an earlier version, whose training of networks cannot be replayed"
            raise OtherVersion(f"{message}: train it again")
        foreign = [name for name in run.sha256 if name not in LIMITS]
        if foreign:
            raise Damaged(f"run.json has a checksum of {foreign[0][:80]!r}, which is not a file of a run")
        weights, weights_content = read_tensors(folder / "weights.safetensors", largest=LARGEST)
        tensors, graph_content = read_tensors(folder / "graph.safetensors", largest=LARGEST)
        names = read_bytes(folder / "graph.json", largest=LIMITS["graph.json"])
        read = dict(zip(_FILES, (weights_content, graph_content, names), strict=True))
        for name in (*_FILES, *sorted(run.sha256.keys() - set(_FILES))):
            found = read[name] if name in read else read_bytes(folder / name, largest=LIMITS[name])
            if run.sha256.get(name) != _checksum(found):
                raise Damaged(f"{name} is not the file that was written")
        graph = _graph(tensors, read_fields(_GraphFile, parse_json(names, what="graph.json"), "graph.json"))
    except OtherVersion:
        raise
    except InputError as error:
        raise Damaged(f"{folder} is damaged: {error}") from error
    return run, graph, weights


def _of_earlier_format(trained: Trained, graph: Graph, *, released: bool) -> Trained:
    """Under this version's digest. Releases that were not counted then count as all that there were to be."""
    recipe = trained.recipe
    spent = (release_ratio(epsilon=recipe.epsilon, delta=recipe.delta),) if released else ()
    return dataclasses.replace(trained, graph_digest=graph.digest, releases=spent)


def _old(folder: Path) -> Path:
    """Where the old state waits while the new one takes its place."""
    return folder.with_name(f".{folder.name}.graphforget-old")


def _real(folder: str | Path) -> Path:
    """The folder itself where a link is given."""
    try:
        folder = Path(folder).resolve()
        folder.exists()
    except OSError as error:
        raise InputError(f"{folder} cannot be used: {error}") from error
    return folder


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def _restore(folder: Path) -> None:
    """Puts the old state back that a process left aside when it was killed between two renames."""
    if _old(folder).is_dir() and not folder.exists():
        _old(folder).rename(folder)


def _clear(folder: Path) -> None:
    """Removes what killed processes left beside the folder: it may hold data that was to be forgotten."""
    if folder.exists():
        shutil.rmtree(_old(folder), ignore_errors=True)
    for left in folder.parent.iterdir() if folder.parent.is_dir() else ():
        staged = re.fullmatch(rf"\.{re.escape(folder.name)}\.graphforget-(\d+)-\w+", left.name)
        if staged and not _alive(int(staged[1])):
            shutil.rmtree(left, ignore_errors=True)


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except OSError:
        return True
    return True


def _write(
    folder: Path,
    trained: Trained,
    graph: Graph,
    extras: Mapping[str, bytes],
    finish: Callable[[Path], None] | None,
) -> None:
    names = {f.name: getattr(graph, f.name) for f in dataclasses.fields(_GraphFile)}
    (folder / "graph.json").write_text(json.dumps(names, indent=2) + "\n")
    (folder / "graph.json").chmod(0o600)  # names people, as the tensors do that safetensors writes so
    flat = {"theta": trained.theta.contiguous()} | ({} if trained.tilt is None else {"tilt": trained.tilt})
    save_file(flat | _untrained_state(trained.module), folder / "weights.safetensors")
    tensors: dict[str, Tensor] = {name: getattr(graph, name).contiguous() for name in _TENSORS}
    if graph.x.layout == torch.sparse_csr:
        tensors |= {
            "x.crow": graph.x.crow_indices().contiguous(),
            "x.columns": graph.x.col_indices().contiguous(),
            "x.values": graph.x.values().contiguous(),
        }
    else:
        tensors["x"] = graph.x.contiguous()
    save_file({name: tensor.clone() for name, tensor in tensors.items()}, folder / "graph.safetensors")
    for name, content in extras.items():
        (folder / name).write_bytes(content)
        (folder / name).chmod(0o600)
    if finish is not None:
        finish(folder)
    sums = {name: _checksum((folder / name).read_bytes()) for name in (*_FILES, *extras)}
    salt = {"graph_salt": trained.graph_salt.hex()}
    run = {"format": FORMAT, "audience": "private", **trained.summary(), **salt, "sha256": sums, "versions": versions()}
    (folder / "run.json").write_text(json.dumps(run, indent=2) + "\n")
    (folder / "run.json").chmod(0o600)  # what was measured, and checksums that names could be tried against
    for path in folder.iterdir():
        with path.open("rb") as file:
            if os.fstat(file.fileno()).st_size > LIMITS[path.name]:
                raise InputError(f"{path.name} would have more than the {LIMITS[path.name]:,} bytes that can be read")
            os.fsync(file.fileno())


def strangers(folder: Path) -> list[str]:
    """Files in a run directory that are none of its own."""
    return sorted(path.name for path in folder.iterdir() if path.name not in OWN) if folder.is_dir() else []


def refit(folder: str | Path) -> None:
    """Writes the checksums anew: for planting failures that no checksum gives away."""
    path = Path(folder) / "run.json"
    run = json.loads(path.read_text())
    sums = {name: _checksum((Path(folder) / name).read_bytes()) for name in run["sha256"]}
    path.write_text(json.dumps(run | {"sha256": sums}, indent=2) + "\n")


def _checksum(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _untrained_state(module: nn.Module) -> dict[str, Tensor]:
    """Buffers and frozen parameters: not in theta, but part of what the model answers."""
    in_theta = {name for name, _ in trainable(module)}
    return {f"state.{name}": value.clone() for name, value in module.state_dict().items() if name not in in_theta}


def _graph(tensors: dict[str, Tensor], names: _GraphFile) -> Graph:
    """The graph, which is checked as one of a user's."""
    if not (0 < names.num_columns <= WIDEST and 0 < names.num_classes <= WIDEST):
        raise InputError(f"the graph has {names.num_columns} columns and {names.num_classes} classes")
    for name, kind in _TENSORS.items():
        if name not in tensors or tensors[name].dtype != kind:
            raise InputError(f"the graph's {name} is missing, or not of type {kind}")
    x = _attributes(tensors, names.num_columns)
    edges = checked_edges(tensors["edge_index"], x.shape[0])
    if not names.directed and not is_symmetric(edges, x.shape[0]):  # gradients count on it
        raise InputError("the graph is undirected and has an edge that goes one way only")
    given: dict[str, Any] = {name: tensors[name] for name in _TENSORS if name != "edge_index"}
    given |= {f.name: getattr(names, f.name) for f in dataclasses.fields(names)}
    digit_ids = given.pop("digit_ids")
    del given["num_columns"]
    graph = Graph.create(x=x, edges=edges, **given)
    return dataclasses.replace(graph, digit_ids=graph.digit_ids or digit_ids)


def _attributes(tensors: dict[str, Tensor], columns: int) -> Tensor:
    """The attributes: dense, or sparse with indices that are in order and within range."""
    x, parts = tensors.get("x"), [tensors[name] for name in _SPARSE if name in tensors]
    if x is None and len(parts) == len(_SPARSE):
        crow, places, values = parts
        size = (max(crow.numel() - 1, 0), columns)
        try:
            x = torch.sparse_csr_tensor(crow, places, values, size=size, check_invariants=True)
        except RuntimeError as error:
            raise InputError(f"the graph's attributes are no sparse matrix: {' '.join(str(error).split())}") from error
    if x is None or x.dtype not in (torch.float32, torch.float64) or x.dim() != 2 or x.shape[1] != columns:
        raise InputError(f"the graph's attributes are missing, or not numbers in {columns} columns")
    return x


def _trained(
    run: _RunFile,
    weights: dict[str, Tensor],
    graph: Graph,
    model: nn.Module | None,
    own_loss: Loss | LossFunction | None,
) -> Trained:
    recipe = run.recipe
    theta, tilt = weights.pop("theta", None), weights.pop("tilt", None)
    if (
        theta is None
        or theta.dim() != 1
        or any(part.dtype != torch.float64 for part in (theta, tilt) if part is not None)
    ):
        raise Damaged("the weights are no list of numbers in float64")
    loss = as_loss(recipe.loss if own_loss is None and is_recorded(recipe.loss) else own_loss)
    if recipe.loss != loss.name:
        raise InputError(f"this model was trained with the loss {recipe.loss!r}, hand it over as loss=...")
    if recipe.model in MODELS:
        shape: dict[str, Any] = {"columns": graph.num_columns, "classes": graph.num_classes}
        _check_size(theta, count_parameters(recipe.model, **shape, options=recipe.options))
        module = build(recipe.model, **shape, seed=recipe.seed, **recipe.options)
    elif model is None:
        raise InputError(f"this model is a {recipe.model}, hand an instance of it over as model=...")
    else:
        module = copy.deepcopy(model)
    if bool(recipe.objective_noise) != (tilt is not None) or (tilt is not None and tilt.shape != theta.shape):
        raise Damaged("the noise in the objective is not that of these weights")
    _check_size(theta, flatten(module).numel())
    # Whoever hands a module or a loss over may have put data into it since.
    brought = [*(() if recipe.model in MODELS else data_carriers(module)), *captured_by_loss(loss)]
    module = module.double().eval()
    module.load_state_dict({name.removeprefix("state."): value for name, value in weights.items()}, strict=False)
    if isinstance(module, Sharded):
        module.check_shards(graph.train_mask)
    assign(module, theta)
    if recipe.model in MODELS and run.reach != getattr(module, "reach", run.reach):
        raise Damaged("run.json: the reach is not that of the model")
    if run.strongly_convex != (is_affine(module) and assumed_convex(loss)):
        raise Damaged("run.json: whether the objective is strongly convex is not as it is")
    return Trained(
        module=module,
        theta=theta,
        recipe=recipe,
        reach=run.reach,
        obstacles=tuple(dict.fromkeys([*run.obstacles, *brought])),
        strongly_convex=run.strongly_convex,
        converged=run.converged,
        objective_value=run.objective,
        gradient_norm=run.gradient_norm,
        graph_digest=run.graph_digest,
        seconds=run.seconds,
        loss=loss,
        history=run.history,
        noise=run.noise,
        tilt=tilt,
        releases=run.releases,
        graph_salt=bytes.fromhex(run.graph_salt),
        notes=run.notes,
    )


def _check_size(theta: Tensor, parameters: int) -> None:
    if theta.numel() != parameters:
        raise InputError(f"the weights have {theta.numel()} parameters, the model has {parameters}")
