"""One session of a run, put together: engine, evaluations, checkpoints, recordings and logs."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import NamedTuple

from doom_a3c.agent.model import GlobalModel, Snapshot
from doom_a3c.agent.policy import Policy
from doom_a3c.agent.precision import check_can_learn
from doom_a3c.engines.cluster import access
from doom_a3c.engines.engine import Engine, LocalEngine, State, captured
from doom_a3c.engines.queue import queue_engine, queues_of
from doom_a3c.engines.threads import threads_engine
from doom_a3c.engines.update_log import UpdateLog
from doom_a3c.envs.games import Games
from doom_a3c.record.files import output_folder
from doom_a3c.record.gifs import Gif, GifFolder, GifMaker
from doom_a3c.record.logger_kinds import make_logger_called
from doom_a3c.record.loggers import Loggers, MakeLogger
from doom_a3c.record.progress import Progress
from doom_a3c.record.rate_limiter import log_gif_limiter
from doom_a3c.record.recording import Recording
from doom_a3c.run import remote
from doom_a3c.run.actors import ActorFactory
from doom_a3c.run.builder import Builder
from doom_a3c.run.checkpoint import load
from doom_a3c.run.evaluation import Evaluation, Evaluations, Evaluator, Leader, Scores, games_for
from doom_a3c.run.film_maker import FilmMaker
from doom_a3c.run.folder import CheckpointFolder
from doom_a3c.run.guard import Guard
from doom_a3c.run.names import called, run_name
from doom_a3c.run.reporter import Reporter, View
from doom_a3c.run.run_record import Best, RunRecord, record_to_plain
from doom_a3c.run.saver import Saver
from doom_a3c.run.training import StoppingRule, Training
from doom_a3c.run.transfer import transfer
from doom_a3c.settings.derived import worker_count
from doom_a3c.settings.fields import UserError
from doom_a3c.settings.streams import Stream, seed_of


class Session(NamedTuple):
    """What there is of a session to run and to look at."""

    record: RunRecord  # at its start
    progress: Progress
    checkpoints: CheckpointFolder
    gifs: Path
    logs: Path
    stopping: StoppingRule
    training: Training


@contextlib.contextmanager
def session_of(
    record: RunRecord,
    games: Games,
    checkpoints: CheckpointFolder,
    variables: Snapshot | None,
    view: View,
    make_logger: MakeLogger | None = None,
    source: Path | None = None,
) -> Iterator[Session]:
    """Puts a session together, and closes afterwards all that it runs. A resumed run continues from the `variables`.

    A new one begins with weights of the checkpoint `source`, where there is one.

    Logs are made by `make_logger`, where that is given, and else as the settings say.

    Whatever can fail by a user's mistake is made before any folder or file but that of the checkpoints.

    Raises:
        UserError: if the scenario cannot be played, a folder not be written to, a cluster not be reached, or the checkpoint
            is one of another game or network.
    """
    config = record.config
    if config.engine == "cluster":
        access.check(config.address)
    check_can_learn(config.precision)
    make_logger = make_logger or make_logger_called(config.logger)
    builder = Builder(record.scenario, config, games)
    model, progress, transferred = _beginning(record, builder, variables, source)
    games.check()
    logs_dir = output_folder(config.logs_dir, "--logs-dir")
    record = _claimed(record, logs_dir) if variables is None else checkpoints.with_best(record)
    gifs, logs = output_folder(config.frames_dir, "--frames-dir") / record.name, logs_dir / record.name
    view.log(f"{'training' if variables is None else 'resuming'} {_described(record, builder)}; logs in {logs}")
    if transferred:
        view.log(transferred)
    if not builder.draws:
        view.log(f"warning: {record.scenario.game.title} draws no pictures of itself: there will be no films")
    with contextlib.ExitStack() as stack:
        if config.engine == "cluster":
            from doom_a3c.engines.cluster.ray import connected  # late, as the driver: hardly any run needs them

            namespace = f"{record.name}-{os.getpid()}"
            stack.enter_context(connected(config.address, namespace, gpu=config.device == "gpu"))
        loggers = stack.enter_context(closing(Loggers(make_logger, logs, view.log)))
        _log_start(loggers, record, builder, model)
        gif_folder, logged_gifs = GifFolder(gifs, view.log), log_gif_limiter()

        def add_gif(gif: Gif) -> None:
            gif_folder.add(gif)
            if logged_gifs.allow():
                loggers("global").gif("game", gif.data, gif.height, gif.width, progress.frames)

        film_maker = stack.enter_context(closing(FilmMaker(builder)))
        gif_maker = stack.enter_context(closing(GifMaker(film_maker, builder.steps_per_second, add_gif, gif_folder.failed)))
        stack.enter_context(closing(builder))
        engine: Engine
        local = None
        if config.engine == "cluster":
            engine = _cluster_engine(record, model, progress, loggers, add_gif, view.log)
        else:
            engine = local = _local_engine(record, builder, model, progress, loggers, gif_maker.add)
        evaluator = stack.enter_context(closing(_evaluator(record, builder, engine)))
        stopping = StoppingRule(config, progress)
        saver = Saver(checkpoints, record, config.checkpoint_every, view.log)
        reporter = Reporter(config, progress, engine, loggers("global"), view, lambda: gif_folder.newest)
        evaluations = _evaluations(record, evaluator, engine, checkpoints, saver, reporter)

        def save() -> None:
            saver.save(engine.capture(), evaluations.best)

        guard = Guard(local, progress, config, view.log, save) if local else None
        training = Training(
            engine,
            progress=progress,
            evaluations=evaluations,
            saver=saver,
            reporter=reporter,
            stopping=stopping,
            guard=guard,
        )
        yield Session(record, progress, checkpoints, gifs, logs, stopping, training)


def _beginning(
    record: RunRecord, builder: Builder, variables: Snapshot | None, source: Path | None
) -> tuple[GlobalModel, Progress, str | None]:
    """Returns the model and the counters that a session begins with, and what has been taken over of a `source`."""
    model, progress = builder.model(record.config), Progress()
    if variables is not None:
        _restore(model, progress, record, variables, builder)
    return model, progress, transfer(model.network, source, builder, record.config.scenario) if source else None


def _claimed(record: RunRecord, logs_dir: Path) -> RunRecord:
    """Makes the folder of a new run's logs, and returns the run's record, by a name that no other run has there.

    Names have the second in which a run began: two may begin in the same one.
    """
    while True:
        try:
            (logs_dir / record.name).mkdir()
            return record
        except FileExistsError:
            time.sleep(0.1)
            record = record._replace(name=run_name(called(record.name), record.config.seed))


def _restore(model: GlobalModel, progress: Progress, record: RunRecord, variables: Snapshot, builder: Builder) -> None:
    """Gives model and progress what the checkpoint holds."""
    config, name = record.config, record.scenario.name
    kernel, actions = variables.get("policy/kernel"), builder.distribution.size
    known = actions if kernel is None or kernel.ndim != 2 else kernel.shape[1]  # what is no kernel is told below
    if known != actions:
        raise UserError(
            f"{config.models_dir}/last.ckpt knows {known} actions, scenario {name} has "
            f"{actions}: resume it with its own buttons, or train in another --models-dir"
        )
    if not builder.has_learned(record.learned):
        raise UserError(
            f"{config.models_dir}/last.ckpt has learned other actions than scenario {name} has, or in another order: "
            "resume it with its own buttons, or train in another --models-dir"
        )
    try:
        model.restore(variables, record.counters.updates, record.counters.halvings)
    except ValueError as error:
        raise UserError(
            f"{config.models_dir}/last.ckpt holds another network or optimizer than scenario {name} with "
            f"{config.optimizer} needs ({error}); resume it without changing those, or train in another --models-dir"
        ) from None
    progress.restore(record.counters)


def _described(record: RunRecord, builder: Builder) -> str:
    config = record.config
    players = f"{worker_count(config)} workers x {config.games} games"
    if config.engine == "cluster":  # how many workers a host has is settled where it runs
        players = f"{config.hosts} hosts a machine, {config.games} games a worker"
    return f"{record.scenario.name}: {builder.title}; {players}, {config.frames:,} frames"


def _log_start(loggers: Loggers, record: RunRecord, builder: Builder, model: GlobalModel) -> None:
    told = record_to_plain(record)  # which does not say where files of the user's lie
    loggers("global").settings({**told["config"], "tables": told["scenario"]})
    # As workers play: what is compiled first has fixed shapes, all other numbers of games share one graph.
    loggers("global").graph(Policy(model.network).graph(builder.example(record.config.games)))


def _local_engine(
    record: RunRecord,
    builder: Builder,
    model: GlobalModel,
    progress: Progress,
    loggers: Loggers,
    recorded: Callable[[Recording], None],
) -> LocalEngine:
    config = record.config
    if config.engine == "queue":
        learners, make_engine = config.trainers, partial(queue_engine, queues=queues_of(config))
    else:
        learners, make_engine = worker_count(config), partial(threads_engine, example=builder.example(config.games))
    return make_engine(
        config=config,
        model=model,
        make_actor=ActorFactory(config, builder, progress, recorded, restarts=record.restarts),
        make_network=partial(builder.network, seed=config.seed),
        progress=progress,
        logs=[UpdateLog(loggers(f"train_{index}")) for index in range(learners)],
        unblock=builder.unblock,
    )


def _cluster_engine(
    record: RunRecord,
    model: GlobalModel,
    progress: Progress,
    loggers: Loggers,
    add_gif: Callable[[Gif], None],
    log: Callable[[str], None],
) -> Engine:
    from doom_a3c.engines.cluster.driver import ClusterEngine  # late: hardly any run needs it

    return ClusterEngine(
        hosts=record.config.hosts,
        device=record.config.device,
        settings=remote.settings(record.config, record.scenario, record.restarts),
        make_server=remote.server,
        make_host=remote.host,
        state=captured(model, progress),
        progress=progress,
        logger_called=loggers,
        add_gif=add_gif,
        log=log,
    )


def _evaluator(record: RunRecord, builder: Builder, engine: Engine) -> Evaluator:
    config = record.config
    return Evaluator(
        builder.evaluation_env(games_for(config.evaluation_episodes)),
        builder.network("evaluator", config.seed),
        seed_of(config.seed, Stream.EVALUATION, record.restarts),
        config.evaluation_epsilon,
        engine.add_fault,
    )


def _best_so_far(checkpoints: CheckpointFolder) -> Leader | None:
    """Returns the weights of `best.ckpt`, None where there are none to be had."""
    try:
        variables, record = load(checkpoints.best)
    except UserError:
        return None
    return Leader(State(variables, record.counters), record.best.policy)


def _evaluations(
    record: RunRecord,
    evaluator: Evaluator,
    engine: Engine,
    checkpoints: CheckpointFolder,
    saver: Saver,
    reporter: Reporter,
) -> Evaluations:
    def evaluated(evaluation: Evaluation, state: State, best: Best, is_best: bool) -> None:
        if is_best:
            saver.save_best(state, best)
        reporter.evaluated(evaluation, state, is_best)

    def settled(evaluation: Evaluation, state: State, best: Best, stays: bool) -> None:
        saver.save_best(state, best)
        reporter.settled(evaluation, stays)

    def confirmed(found: Scores, state: State, best: Best) -> None:
        saver.save_best(state, best)
        reporter.confirmed(found, state, best.policy)

    return Evaluations(
        evaluator,
        episodes=record.config.evaluation_episodes,
        every=record.config.evaluate_every,
        capture=engine.capture,
        report=evaluated,
        settle=settled,
        confirmed=confirmed,
        best=record.best,
        earlier=partial(_best_so_far, checkpoints),
    )
