"""A module, a loss and a training function of the user, by import paths of the command line.

An import path is never taken from a file: a run directory of somebody else must not decide which code runs.
"""

from __future__ import annotations

import importlib
import os
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from graphforget.cli.options import named_options
from graphforget.errors import InputError
from graphforget.files import check_uncompressed

if TYPE_CHECKING:
    from torch import Tensor, nn

    from graphforget.models.constructions import OwnModel

MODULE_HELP = "Your own module, package.file:Name: its class, a function that makes it, or a stacked or boosted model."
ModulePath = Annotated[str | None, typer.Option("--module", help=MODULE_HELP)]
ModuleOption = Annotated[
    list[str] | None,
    typer.Option("--module-option", help="An argument of your module, such as hidden=64. May be repeated."),
]
LossPath = Annotated[str | None, typer.Option("--loss", help="Your own loss, package.file:name, or a built-in name.")]
RetrainPath = Annotated[
    str | None,
    typer.Option("--retrain", help="Your training function, package.file:name; it takes a PyG Data, returns a module."),
]


def own_code(
    module: str | None, module_option: list[str] | None, loss: str | None, retrain: str | None = None
) -> dict[str, Any]:
    """The arguments `model`, `loss` and `retrain` of the functions that read a run; only those that were given."""
    if module is None and module_option:
        raise InputError("--module-option is given without --module")
    given: dict[str, Any] = {}
    if module is not None:
        given["model"] = made_module(module, module_option)
    if loss is not None:
        given["loss"] = named_loss(loss)
    if retrain is not None:
        given["retrain"] = imported(retrain)
    return given


def imported(path: str) -> Any:
    """The object at an import path `package.file:Name`. The current folder is searched last."""
    name, colon, attribute = path.partition(":")
    if not colon or not all(part.isidentifier() for part in (*name.split("."), *attribute.split("."))):
        raise InputError(f"{path!r} is not an import path, package.file:Name is needed")
    _make_current_folder_importable()
    try:
        value: Any = importlib.import_module(name)
    except (Exception, SystemExit) as error:  # the file is the user's and can raise anything
        raise InputError(f"{name} cannot be imported: {type(error).__name__}: {_one_line(error)}") from error
    for part in attribute.split("."):
        if not hasattr(value, part):
            raise InputError(f"{name} has no {attribute!r}")
        value = getattr(value, part)
    return value


def made_module(path: str, options: list[str] | None) -> OwnModel:
    """The module that the class or function at `path` makes with these options, or the stacked or boosted model."""
    from torch import nn

    from graphforget.models.constructions import Construction

    make: Callable[..., Any] = imported(path)
    if isinstance(make, Construction):
        if options:
            raise InputError(f"{path} is a {make.kind} model, so it takes no --module-option")
        return make
    if isinstance(make, nn.Module) or not callable(make):
        raise InputError(f"{path} is a {type(make).__name__}, the class of a module or a function is needed")
    given = named_options(options)
    try:
        module = make(**given)
    except Exception as error:
        how = "with the arguments of --module-option" if given else "without arguments"
        hint = "" if given else "; give them by --module-option name=value, or name a model such as gf.stacked(MyGNN)"
        raise InputError(f"{path} cannot be called {how}: {_one_line(error)}{hint}") from error
    if not isinstance(module, nn.Module | Construction):
        raise InputError(f"{path} makes a {type(module).__name__}, a torch.nn.Module is needed")
    return module


def named_loss(loss: str) -> Any:
    """A built-in loss by its name, or the loss at an import path."""
    from graphforget.training.losses import is_recorded

    return loss if is_recorded(loss) or ":" not in loss else imported(loss)


def load_checkpoint(module: nn.Module, path: Path) -> None:
    """Puts the weights of a checkpoint into the module, which becomes one in float64."""
    import torch

    state = _state_dict(path)
    expected = module.double().state_dict()
    for name in dict.fromkeys([*expected, *state]):
        if name not in state:
            raise InputError(f"{path} does not fit {type(module).__name__}: {name!r} is missing")
        if name not in expected:
            raise InputError(f"{path} does not fit {type(module).__name__}: the module has no {name!r}")
        value = state[name]
        if value.layout != torch.strided or value.is_quantized or value.is_meta or value.is_complex():
            raise InputError(
                f"{path} does not fit {type(module).__name__}: {name!r} is not a dense tensor of real numbers"
            )
        if value.is_floating_point() != expected[name].is_floating_point():
            raise InputError(f"{path} does not fit {type(module).__name__}: {name!r} is of type {value.dtype}")
        shape, needed = (tuple(one[name].shape) for one in (state, expected))
        if shape != needed:
            raise InputError(f"{path} does not fit {type(module).__name__}: {name!r} is {shape}, {needed} is needed")
    with torch.no_grad():
        module.load_state_dict(state)


def _state_dict(path: Path) -> dict[str, Tensor]:
    """The tensors of a safetensors file, or of a file by `torch.save(module.state_dict(), path)`. No code runs."""
    import torch

    if not path.is_file():
        raise InputError(f"{path} does not exist, or is not a file")
    if path.suffix == ".safetensors":
        from graphforget.runs.layout import LARGEST
        from graphforget.runs.tensors import read_tensors

        return read_tensors(path, largest=LARGEST)[0]
    check_uncompressed(path)
    try:
        with warnings.catch_warnings(action="ignore"):  # of a file that is refused anyway
            state = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # a damaged file can raise anything
        raise InputError(
            f"{path} is not a state_dict of tensors, and a pickled module is not read because it could run code: save "
            "module.state_dict()"
        ) from error
    if not isinstance(state, dict) or not all(
        isinstance(name, str) and isinstance(value, torch.Tensor) for name, value in state.items()
    ):
        raise InputError(f"{path} holds a {type(state).__name__} that is not a state_dict: save module.state_dict()")
    return dict(state)


def _make_current_folder_importable() -> None:
    """As `python -m` does, but last, so that no file there replaces an installed library; never a run directory."""
    from graphforget.runs.layout import inside_run

    here = os.getcwd()
    if here not in sys.path and not inside_run(Path(here) / "file"):
        sys.path.append(here)


def _one_line(error: BaseException) -> str:
    return " ".join(str(error).split())
