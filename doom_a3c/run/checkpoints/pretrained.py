"""The pretrained models of the project, by name."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple

from doom_a3c.record.files import check_exists
from doom_a3c.run.checkpoints.runs import find_checkpoint, list_runs, match_run
from doom_a3c.settings.config import Config
from doom_a3c.settings.errors import UserError, require, suggest
from doom_a3c.settings.inputs import exists, expand, list_data_folders

_FOLDERS = list_data_folders("models/pretrained", "pretrained")
CARDS = "cards.json"


class Card(NamedTuple):
    """The training of a pretrained model, and its scores in episodes that training has not seen."""

    scenario: str
    seed: int
    frames: int
    minutes: float  # of training
    commit: str
    command: str
    episodes: int  # played by each policy, and by random play
    first_seed: int  # of these episodes
    greedy: tuple[float, float]  # mean and standard deviation of the scores
    sample: tuple[float, float]
    random: tuple[float, float]
    standing: str = ""  # of the better policy among the players of its matches


def find_folder() -> Path:
    """Returns the folder of the models."""
    return next((folder for folder in _FOLDERS if folder.is_dir()), _FOLDERS[0])


def list_models() -> dict[str, Path]:
    """Returns the paths of the models, by name."""
    return {path.stem: path for path in sorted(find_folder().glob("*.ckpt"))}


def read_cards() -> dict[str, Card]:
    """Reads the card of each model, by name."""
    path = find_folder() / CARDS
    tables: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {}
    return {name: Card(**table) for name, table in tables.items()}


def find_model(model: str) -> Path:
    """Returns the path of a checkpoint, named by its path, its run's folder or name, or as a pretrained model.

    Raises:
        UserError: if there is no such checkpoint or model.
    """
    require(bool(model.strip()), "the name of the model is empty; play.py --list-models shows all")
    known, path = list_models(), find_checkpoint(expand(model))
    hidden = model in known and path.is_dir()  # a folder of that name without checkpoints, such as an earlier --out
    if not hidden and ("/" in model or model.endswith(".ckpt") or exists(path)):
        check_exists(path)
        return path
    if model in known:
        return known[model]
    if run := match_run(list_runs(Path(Config.models_dir)), model):
        return find_checkpoint(run)
    raise UserError(f"there is no checkpoint or model {model}{suggest(model, known)}; play.py --list-models shows all")
