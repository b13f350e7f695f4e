"""Starts runs: from settings by name to a session, for the command line and the Python API."""

from __future__ import annotations

import contextlib
import os
import shlex
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from doom_a3c.record.metrics.counters import WINDOW
from doom_a3c.record.metrics.statistics import format_score
from doom_a3c.run.checkpoints.checkpoint import load
from doom_a3c.run.checkpoints.folder import CheckpointFolder
from doom_a3c.run.checkpoints.pretrained import find_model, list_models
from doom_a3c.run.checkpoints.run_record import RunRecord, begin_run, continue_run, format_needed_flags, is_run_name
from doom_a3c.run.imports import import_tensorflow, parse_device, pause_gc
from doom_a3c.settings import catalog, scenarios
from doom_a3c.settings.checks import check_combinations
from doom_a3c.settings.config import Config, cpu_count
from doom_a3c.settings.errors import UserError, require, suggest
from doom_a3c.settings.fields import to_flat
from doom_a3c.settings.games import FUNCTION, GymnasiumSpec
from doom_a3c.settings.inputs import expand
from doom_a3c.settings.setting import make_flag
from doom_a3c.settings.sources import CHECKPOINT, FLAG, Layer
from doom_a3c.settings.training import OPPONENTS
from doom_a3c.settings.trust import GameOverride

if TYPE_CHECKING:
    from doom_a3c.envs.factory import GameFactory
    from doom_a3c.run.reporter import View
    from doom_a3c.run.session import Session

# Not restored from a checkpoint, which may be untrusted: models folder, limits, device, cluster and logger.
_OF_A_SESSION = (
    *("models_dir", "minutes", "target_score", "device", "address"),
    *("logger", "wandb_project", "wandb_entity"),
)


def make_new_run(settings: Mapping[str, Any], name: str | None = None) -> RunRecord:
    """Returns the record of a new run: defaults, then the scenario file's settings, then `settings`, flat and by name.

    Raises:
        UserError: for an unknown setting, or a value that does not fit.
    """
    scenario = catalog.find(settings.get("scenario", Config.scenario))
    scenario, config = scenarios.apply_layers(scenario, scenario.training, _list_layers(settings), "settings")
    return begin_run(scenario, _check_combinations(scenario, config, settings), name)


def make_resumed_run(old: RunRecord, settings: Mapping[str, Any]) -> RunRecord:
    """Returns the record of a resumed run: its checkpoint's settings, overridden by `settings`.

    Raises:
        UserError: for an unknown setting, a value that does not fit, or if the run has used its budget or reached its
            target score.
    """
    record = override_record(old, settings)
    if budget := record.config.exhausted_budget(record.counters):
        used, whole = getattr(record.counters, budget), getattr(record.config, budget)
        raise UserError(
            f"the run has played {used:,} {budget}, and its budget is {whole:,}; set a larger one, "
            f"such as --{budget} {2 * used}"
        )
    mean, target = record.counters.mean_score, record.config.target_score
    if target is not None and mean is not None and mean >= target:
        raise UserError(
            f"the mean score of the run's last {WINDOW} episodes is {format_score(mean)} already, and --target-score is "
            f"{format_score(target)}: set a higher one, or leave it out"
        )
    return record


def override_record(old: RunRecord, settings: Mapping[str, Any]) -> RunRecord:
    """Returns the record of a resumed run, as `make_resumed_run` does, even if the run has ended by its limits."""
    scenario = old.scenario
    if settings.get("scenario", old.config.scenario) != old.config.scenario:
        scenario = catalog.find(settings["scenario"])
    kept = {key: value for key, value in to_flat(old.config).items() if key not in _OF_A_SESSION}
    _check_folders({**kept, **dict.fromkeys(settings, "")}, old.name)
    opponents = kept["opponents"]
    if "opponents" not in settings and _is_file(opponents):  # the checkpoint may be untrusted
        raise UserError(f"the run played against {opponents}: name that file with --opponents, or use --opponents self")
    tables = {path: source for path, source in scenario.sources.items() if not path.startswith("training.")}
    layers = [Layer(CHECKPOINT, kept), *_list_layers(settings)]
    scenario, config = scenarios.apply_layers(replace(scenario, sources=tables), {}, layers, "the checkpoint's settings")
    return continue_run(old, scenario, _check_combinations(scenario, config, settings))


def _is_file(opponents: str) -> bool:
    """Returns whether the opponents are a checkpoint of the user's, whose path the run's own checkpoints leave out."""
    return opponents not in (*OPPONENTS, *list_models())


def format_resume_flags(record: RunRecord, folder: Path) -> str:
    """Returns the flags that continue a run from its folder, with the settings that its checkpoints do not restore."""
    config, is_own = record.config, folder.name == record.name  # else the models folder itself is the run's
    flags = [f"--resume {shlex.quote(record.name if is_own else str(folder))}"]
    for name in ("models_dir", "device", "address", "logger", "wandb_project", "wandb_entity"):
        if (value := getattr(config, name)) != getattr(Config, name) and (is_own or name != "models_dir"):
            flags.append(f"{make_flag(name)} {shlex.quote(value)}")
    opponents = f" --opponents {shlex.quote(config.opponents)}" if _is_file(config.opponents) else ""
    return f"{' '.join(flags)}{format_needed_flags(record)}{opponents}"


def _list_layers(settings: Mapping[str, Any]) -> list[Layer]:
    """Returns the layers of the flags; a new budget also turns off `until_learned`, which would end the run before it."""
    whole = [Layer("a budget flag", {"until_learned": False})] if {"frames", "episodes"} & settings.keys() else []
    return [*whole, Layer(FLAG, settings)]


def _check_combinations(scenario: scenarios.Scenario, config: Config, settings: Mapping[str, Any]) -> Config:
    """Returns the settings after checking the device, and their combinations with each other and with the network."""
    parse_device(config.device)
    if "sequence_length" in settings and config.sequence_length and scenario.network.core == "none":
        raise UserError(f"--sequence-length has no effect here: {scenario.name} has no recurrent core; leave it out")
    if settings.get("gif_overlay") and not config.gif_every:
        raise UserError("--gif-overlay has no effect with --gif-every 0, which makes no gifs; leave one of them out")
    unpaid = [name for name in settings if name.endswith(("shaping_weight", "shaping_weight_frames"))]
    if unpaid and not getattr(scenario.game, "shaping", None):
        cure = "add --shaping, or leave it out"
        raise UserError(f"{make_flag(unpaid[0])} has no effect here: {scenario.name} has no shaping; {cure}")
    if settings.get("until_learned"):
        if scenario.expected_mean is None:
            raise UserError(
                f"--until-learned needs a score to expect, and {scenario.name} has none: set expected_mean in its file, "
                "or use --target-score"
            )
        if not config.evaluate_every:
            raise UserError("--until-learned needs evaluations: set --evaluate-every above 0")
    return check_combinations(config, settings)


def _check_folders(kept: Mapping[str, Any], name: str) -> None:
    """Raises UserError if a checkpoint, which may be untrusted, names output folders outside the current one.

    Others are accepted if the run has written to them before, on this machine.
    """
    for flag, folder in (("--frames-dir", kept["frames_dir"]), ("--logs-dir", kept["logs_dir"])):
        path = expand(folder)
        inside = not path.is_absolute() and ".." not in path.parts
        if not inside and not (is_run_name(name) and os.path.isdir(path / name)):
            raise UserError(f"the checkpoint's run wrote to {folder}, which is missing: name a folder with {flag}")


@contextlib.contextmanager
def open_session(
    record: RunRecord,
    checkpoints: CheckpointFolder,
    override: GameOverride | None,
    view: View,
    verbose: bool = False,
    source: Path | None = None,
    make_env: Callable[[], Any] | None = None,
) -> Iterator[Session]:
    """Starts the games while TensorFlow loads, builds a session, and closes everything afterwards.

    Continues from the newest checkpoint if there is an `override`, or starts with the weights of `source`. `make_env`
    makes an environment that Gymnasium does not know.

    Raises:
        UserError: as `build_session` does, for a checkpoint that cannot be continued from, and if the user's environment
            returns unusable observations or rewards.
        RunError: if the run has diverged or could not be saved.
    """
    config = record.config
    if checkpoints.lock is not None:
        checkpoints.lock.note(record.name, record.counters.frames)
    # The driver of a cluster only evaluates: a GPU is for the server, wherever that is.
    device = "cpu" if config.engine == "cluster" else config.device
    with closing(_start_games(record.scenario, config, make_env)) as games:
        view.set_phase(lambda: ", ".join(filter(None, [games.startup_status(), "loading TensorFlow"])))
        import_tensorflow(cpu_count(), verbose, device)
        variables = None if override is None else _load_newest(checkpoints, override)
        checkpoints.tidy()
        with pause_gc():  # takes a second, while the games start
            from doom_a3c.run.session import build_session
        view.set_phase(games.startup_status)
        with (
            build_session(record, games, checkpoints, variables, view, source=source) as session,
            _name_checkpoint(session, checkpoints),
        ):
            yield session


def _load_newest(checkpoints: CheckpointFolder, override: GameOverride) -> dict[str, Any]:
    with checkpoints.suggest_whole():
        checkpoint = load(checkpoints.last, override)
    checkpoint.check_finite(checkpoints.last)
    return checkpoint.variables


@contextlib.contextmanager
def _name_checkpoint(session: Session, checkpoints: CheckpointFolder) -> Iterator[None]:
    """Adds the newest checkpoint to the message of an error that ends the session."""
    from doom_a3c.agent.rollouts import UNUSABLE  # late: these import TensorFlow
    from doom_a3c.engines.updates import DivergedError

    try:
        yield
    except DivergedError as error:
        faults, game = session.progress.faults, session.record.scenario.game
        unusable = isinstance(game, GymnasiumSpec) and any(faults[kind] for kind in UNUSABLE)
        mistake = UserError if unusable else DivergedError  # a fault of the user's own environment
        raise mistake(f"{error}; the last good checkpoint is {checkpoints.last}") from None
    except UserError as error:  # from the game's code, say
        resume = format_resume_flags(session.record, checkpoints.folder)
        if FUNCTION.fullmatch(session.record.config.scenario):
            resume = f"doom_a3c.resume({str(checkpoints.folder)!r}, env=...)"
        saved = f"; {resume} continues from {checkpoints.last}" if checkpoints.last.exists() else ""
        raise UserError(f"{error}{saved}") from error


def _start_games(scenario: scenarios.Scenario, config: Config, make_env: Callable[[], Any] | None) -> GameFactory:
    """Starts the games of a run's workers; returns at once."""
    if make_env and config.engine == "cluster":
        raise UserError(f"engine: a cluster cannot play {scenario.game.title}: register it, and name it module:Name-v0")
    from doom_a3c.envs.games import make_game_factory  # late: --help does not need it

    games = make_game_factory(scenario.game, scenario.observation, config.game_processes, make_env)
    _check_opponents(config, games.agents)
    if config.engine != "cluster":  # its hosts start their own games
        players = config.envs_per_worker + config.count_opposed(games.agents) * (games.agents - 1)
        games.start_early(config.worker_count, players, config.rows_kept)
    return games


def _check_opponents(config: Config, agents: int) -> None:
    """Raises UserError for opponents that a cluster, or a game with this number of agents, cannot have."""
    cure = "--opponents self, or [game.match] agents = 2 for a match of two"
    require(agents > 1 or config.opponents == "self", f"--opponents {config.opponents}: the game has one agent: {cure}")
    if agents == 1:
        return
    whole = config.envs_per_worker % agents == 0
    require(whole, f"--envs-per-worker {config.envs_per_worker}: matches of {agents} agents need a multiple of {agents}")
    require(config.engine != "cluster" or config.opponents == "self", "--engine cluster plays --opponents self alone")
    rated = "evaluations of several agents are rated by a league, see docs/multiplayer.md"
    require(not config.until_learned, f"--until-learned has no score to wait for: {rated}")
    if config.opponents not in OPPONENTS:
        try:
            find_model(config.opponents)
        except UserError as error:
            others = (*OPPONENTS, "bots")
            hint = suggest(config.opponents, others)
            raise UserError(f"--opponents: {error}; it also takes {', '.join(others)}{hint}") from None
