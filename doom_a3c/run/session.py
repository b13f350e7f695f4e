"""Builds one session of a run: engine, evaluations, checkpoints, recordings and logs."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

from doom_a3c.agent.model import GlobalModel, Snapshot
from doom_a3c.agent.parameters import variable_name
from doom_a3c.agent.policy import Policy
from doom_a3c.agent.precision import check_can_learn
from doom_a3c.engines.cluster import access
from doom_a3c.engines.engine import Engine
from doom_a3c.engines.local import LocalEngine
from doom_a3c.engines.state import State
from doom_a3c.envs.factory import GameFactory
from doom_a3c.record.files import output_folder
from doom_a3c.record.films.gifs import Gif, GifFolder, GifMaker
from doom_a3c.record.metrics.logger_kinds import find_logger
from doom_a3c.record.metrics.loggers import Loggers, MakeLogger
from doom_a3c.record.metrics.progress import Progress
from doom_a3c.record.metrics.rate_limiter import log_gif_limiter
from doom_a3c.run.builder import Builder
from doom_a3c.run.checkpoints.folder import CheckpointFolder
from doom_a3c.run.checkpoints.run_record import RunRecord, record_to_plain
from doom_a3c.run.evaluator import Evaluator
from doom_a3c.run.film_maker import FilmMaker
from doom_a3c.run.guard import CollapseGuard
from doom_a3c.run.league import League
from doom_a3c.run.learning_watch import LearningWatch
from doom_a3c.run.make_engine import Outputs, connect_to_cluster, make_engine
from doom_a3c.run.make_evaluations import make_evaluations, make_evaluator
from doom_a3c.run.opposition import arrange_league
from doom_a3c.run.reporter import Reporter, View
from doom_a3c.run.saver import Saver
from doom_a3c.run.training import StoppingRule, Training
from doom_a3c.run.transfer import transfer
from doom_a3c.settings.config import Config
from doom_a3c.settings.errors import UserError


class Session(NamedTuple):
    """A session to run, and its counters and output folders."""

    record: RunRecord  # at the start of the session
    progress: Progress
    checkpoints: CheckpointFolder
    gifs: Path
    logs: Path
    stopping: StoppingRule
    training: Training


@contextlib.contextmanager
def build_session(
    record: RunRecord,
    games: GameFactory,
    checkpoints: CheckpointFolder,
    variables: Snapshot | None,
    view: View,
    make_logger: MakeLogger | None = None,
    source: Path | None = None,
) -> Iterator[Session]:
    """Builds a session, and closes all its parts at the end of the context.

    A resumed run continues from its checkpoint's `variables`; a new one starts with the weights of `source`, if any.
    `make_logger` replaces the logger of the settings. User mistakes are raised before logs or gifs are written.

    Raises:
        UserError: if a scenario, folder, cluster or checkpoint cannot be used.
    """
    config = record.config
    _check_machine(config)
    make_logger = make_logger or find_logger(
        config.logger, config.wandb_project, config.wandb_entity, record.counters.frames
    )
    builder = Builder(record.scenario, config, games)
    model, progress, transferred = _make_model(record, builder, checkpoints.last, variables, source)
    record = record._replace(actions=builder.action_sizes)
    games.check()
    logs_dir = output_folder(config.logs_dir, "--logs-dir")
    if variables is not None:
        record = checkpoints.adopt_best(record)
    gifs, logs = output_folder(config.frames_dir, "--frames-dir") / record.name, logs_dir / record.name
    _announce(view, record, builder, checkpoints, logs, transferred)
    with contextlib.ExitStack() as stack:
        if config.engine == "cluster":
            stack.enter_context(connect_to_cluster(record))
        loggers = stack.enter_context(closing(Loggers(make_logger, logs, view.log)))
        _log_start(loggers, record, builder, model)
        gif_folder = GifFolder(gifs, view.log)
        outputs = stack.enter_context(_open_outputs(builder, progress, loggers, gif_folder, view))
        stack.enter_context(closing(builder))
        weights = _read_weights(model)
        league = arrange_league(record, builder, checkpoints.folder, weights, view.log)
        engine = make_engine(record, builder, model, progress, outputs)
        builder.get_reward_sums = lambda: engine.reward_sums
        evaluator = stack.enter_context(closing(make_evaluator(record, builder, engine, league)))
        shown = view, lambda: gif_folder.newest, record.scenario
        reporter = Reporter(config, progress, engine, loggers("global"), *shown, rated=league is not None)
        keeper = _LeagueKeeper(league, record, list(weights), view)
        training = _make_training(record, engine, evaluator, progress, checkpoints, reporter, view, keeper)
        yield Session(record, progress, checkpoints, gifs, logs, training.stopping, training)


def _read_weights(model: GlobalModel) -> Snapshot:
    """Returns the weights without the optimizer's statistics."""
    return {variable_name(parameter): parameter.numpy() for parameter in model.network.parameters}


def _check_machine(config: Config) -> None:
    if config.engine == "cluster":
        access.check(config.address)
    check_can_learn(config.precision)


def _make_model(
    record: RunRecord, builder: Builder, last: Path, variables: Snapshot | None, source: Path | None
) -> tuple[GlobalModel, Progress, str | None]:
    """Returns the model and counters at the start of a session, and a note on weights transferred from a `source`."""
    model, progress = builder.make_model(record.config), Progress()
    if variables is not None:
        _restore(model, progress, record, last, variables, builder)
    return model, progress, transfer(model.network, source, builder, record.config.scenario) if source else None


def _restore(
    model: GlobalModel, progress: Progress, record: RunRecord, last: Path, variables: Snapshot, builder: Builder
) -> None:
    """Restores model and counters from a checkpoint, `last`."""
    config, name = record.config, record.scenario.name
    kernel, actions = variables.get("policy/kernel"), builder.distribution.size - builder.distribution.free
    known = actions if kernel is None or kernel.ndim != 2 else kernel.shape[1]  # other shapes fail in `restore` below
    if known != actions:
        raise UserError(
            f"{last} has {known} outputs for its actions, scenario {name} needs {actions}: "
            "resume it with its own actions, or train a new run without --resume"
        )
    if not builder.has_learned(record.learned, record.actions):
        raise UserError(
            f"{last} was trained on other actions than scenario {name} has, or in another order: "
            "resume it with its own actions, or train a new run without --resume"
        )
    try:
        model.restore(variables, record.counters.updates, record.counters.halvings)
    except ValueError as error:
        raise UserError(
            f"{last} holds another network or optimizer than scenario {name} with "
            f"{config.optimizer} needs ({error}); resume it without changing them, or train a new run without --resume"
        ) from None
    model.reward_stats.replace(record.counters.reward_sums)
    progress.restore(record.counters)


def _describe(record: RunRecord, builder: Builder) -> str:
    config = record.config
    players = f"{config.worker_count} workers x {config.envs_per_worker} games"
    if config.engine == "cluster":  # each host chooses its number of workers
        players = f"{config.hosts} hosts a machine, {config.envs_per_worker} games a worker"
    return f"{record.scenario.name}: {builder.title}; {players}, {config.frames:,} frames"


def _announce(
    view: View, record: RunRecord, builder: Builder, checkpoints: CheckpointFolder, logs: Path, transferred: str | None
) -> None:
    frames, killed_at = record.counters.frames, checkpoints.lock.killed_at if checkpoints.lock else None
    verb = f"resuming at frame {frames:,}:" if record.restarts else "training"
    view.log(f"{verb} {_describe(record, builder)}; logs in {logs}")
    if killed_at is not None and killed_at > frames:
        view.log(f"{killed_at - frames:,} frames are played again: the last session was killed at frame {killed_at:,}")
    if transferred:
        view.log(transferred)
    if builder.missing_pictures:
        view.log(f"no films: {builder.missing_pictures}")
    if builder.left_out:
        view.log(f"left out: {', '.join(builder.left_out)}")


def _log_start(loggers: Loggers, record: RunRecord, builder: Builder, model: GlobalModel) -> None:
    settings = record_to_plain(record)  # without the paths of the user's files
    loggers("global").settings({**settings["config"], "tables": settings["scenario"]})
    # With the workers' number of games: the first graph has fixed shapes, all other numbers of games share one more.
    loggers("global").graph(Policy(model.network).get_graph(builder.inputs.make_zeros(record.config.envs_per_worker)))


class _LeagueKeeper(NamedTuple):
    """Adds weights to the league of a run, if it has one."""

    league: League | None
    record: RunRecord
    names: Sequence[str]  # of the weights
    view: View

    def add(self, state: State, rating: float | None) -> None:
        """Adds weights with their rating, None if they were not evaluated."""
        if self.league is None:
            return
        weights = {name: state.variables[name] for name in self.names}
        try:
            self.league.add(self.record._replace(counters=state.counters), rating, weights)
        except OSError as error:
            where = error.filename or self.league.folder
            self.view.log(f"warning: {where}: {error.strerror}: the league's newest member is not saved")

    def add_if_due(self, state: State) -> None:
        """Adds saved weights if another member is due."""
        if self.league is not None and self.league.is_due(state.counters.frames, self.record.config.frames):
            self.add(state, None)


@contextlib.contextmanager
def _open_outputs(
    builder: Builder, progress: Progress, loggers: Loggers, gif_folder: GifFolder, view: View
) -> Iterator[Outputs]:
    """Makes the outputs of an engine: recordings become gifs, of which some are logged too."""
    logged_gifs = log_gif_limiter()

    def add_gif(gif: Gif) -> None:
        gif_folder.add(gif)
        if logged_gifs.allow():
            loggers("global").gif("game", gif.data, gif.height, gif.width, progress.frames)

    with (
        closing(FilmMaker(builder)) as film_maker,
        closing(GifMaker(film_maker, builder.steps_per_second, add_gif, gif_folder.warn)) as gif_maker,
    ):
        yield Outputs(loggers, gif_maker.add, add_gif, view.log)


def _make_training(
    record: RunRecord,
    engine: Engine,
    evaluator: Evaluator,
    progress: Progress,
    checkpoints: CheckpointFolder,
    reporter: Reporter,
    view: View,
    keeper: _LeagueKeeper,
) -> Training:
    config, guard = record.config, None
    saver = Saver(checkpoints, record, config.checkpoint_every, view.log)
    evaluations = make_evaluations(record, evaluator, engine, checkpoints, saver, reporter, keeper.add)
    if isinstance(engine, LocalEngine):  # a cluster cannot roll back

        def save() -> None:
            saver.save(engine.capture(), evaluations.best)

        guard = CollapseGuard(engine, progress, config, view.log, save)
    stopping, expected = StoppingRule(config, progress), record.scenario.expected_mean
    watch = None  # with several agents: frags against oneself need not rise, and ratings are not scores
    if not reporter.rated:
        watch = LearningWatch(config, expected, progress, record.best.evaluations, view.log, stopping.end)
    return Training(
        engine,
        progress=progress,
        evaluations=evaluations,
        saver=saver,
        reporter=reporter,
        stopping=stopping,
        guard=guard,
        watch=watch,
        on_save=keeper.add_if_due,
    )
