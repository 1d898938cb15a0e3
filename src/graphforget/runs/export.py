"""Exports the released model of a run directory as files that need torch alone."""

from __future__ import annotations

import shutil
from pathlib import Path

import torch

from graphforget.errors import InputError
from graphforget.files import error_reason
from graphforget.models import plain
from graphforget.models.plain_copies import describe, plain_copy
from graphforget.models.registry import MODELS
from graphforget.runs.layout import open_run
from graphforget.runs.released import released_module
from graphforget.runs.run_file import read_run_file


def export_released(run: str | Path, folder: str | Path) -> Path:
    """Writes the released model of a run directory as a plain torch module.

    `model.pt` holds the weights with the noise of the certificate, the settings and the certificate's id; the folder
    `released_model` holds the classes. `released_model.load("model.pt")(x, edge_index)` gives the logits of nodes,
    without this package; how models for graphs and links are called is written in `released_model/__init__.py`. All of
    it is public, as the release is.

    Args:
        run: The run directory. It has answered a request. Its graph may be in parts.
        folder: A new folder to write.

    Returns:
        The folder.

    Raises:
        InputError: The run has released nothing, the model cannot be exported, or the folder exists already.
    """
    folder = Path(folder)
    with open_run(run) as place:
        model = read_run_file(place).recipe.model
    if model not in MODELS:
        raise InputError(f"this model is a {model}, and only built-in models can be exported: load it in Python")
    module, certificate = released_module(run)
    plain_copy(module)  # refuses what cannot be exported
    settings, state = describe(module)
    content = {"settings": settings, "state_dict": state, "certificate": certificate.id}
    try:
        folder.mkdir(parents=True)
        torch.save(content, folder / "model.pt")
        (folder / "released_model").mkdir()
        for source in sorted(Path(plain.__file__).parent.glob("*.py")):
            shutil.copyfile(source, folder / "released_model" / source.name)
    except FileExistsError as error:
        raise InputError(f"{folder} exists already, choose another place") from error
    except OSError as error:
        raise InputError(f"{folder} cannot be written: {error_reason(error)}") from error
    return folder
