"""Makes the engine of a run: threads or queues in this process, or hosts of a cluster."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from doom_a3c.agent.model import GlobalModel
from doom_a3c.engines.engine import Engine
from doom_a3c.engines.local import LocalEngine, capture_state
from doom_a3c.engines.queue import make_queue_engine, make_queues
from doom_a3c.engines.threads import make_threads_engine
from doom_a3c.engines.update_log import UpdateLog
from doom_a3c.record.films.gifs import Gif
from doom_a3c.record.films.recording import Recording
from doom_a3c.record.metrics.loggers import Loggers
from doom_a3c.record.metrics.progress import Progress
from doom_a3c.run import remote
from doom_a3c.run.actors import ActorFactory
from doom_a3c.run.builder import Builder
from doom_a3c.run.checkpoints.run_record import RunRecord


class Outputs(NamedTuple):
    """The outputs of an engine besides the model and the counters."""

    loggers: Loggers
    add_recording: Callable[[Recording], None]  # of games in this process
    add_gif: Callable[[Gif], None]  # of games on hosts of a cluster
    log: Callable[[str], None]


def make_engine(
    record: RunRecord, builder: Builder, model: GlobalModel, progress: Progress, outputs: Outputs
) -> LocalEngine | Engine:
    """Makes the engine of a run, not started yet."""
    if record.config.engine == "cluster":
        return _make_cluster_engine(record, model, progress, outputs)
    return _make_local_engine(record, builder, model, progress, outputs)


def _make_local_engine(
    record: RunRecord, builder: Builder, model: GlobalModel, progress: Progress, outputs: Outputs
) -> LocalEngine:
    config = record.config
    make_actor = ActorFactory(
        config, builder, progress, model.reward_stats, outputs.add_recording, restarts=record.restarts
    )
    if config.engine == "queue":
        learners, make = config.trainers, partial(make_queue_engine, queues=make_queues(config))
    else:
        example = builder.inputs.make_zeros(config.envs_per_worker)
        learners, make = config.worker_count, partial(make_threads_engine, example=example)
    return make(
        config=config,
        model=model,
        make_actor=make_actor,
        make_network=partial(builder.make_network, seed=config.seed),
        progress=progress,
        logs=[UpdateLog(outputs.loggers(f"train_{index}")) for index in range(learners)],
        unblock=builder.unblock,
    )


def _make_cluster_engine(record: RunRecord, model: GlobalModel, progress: Progress, outputs: Outputs) -> Engine:
    from doom_a3c.engines.cluster.driver import ClusterEngine  # late: few runs need Ray
    from doom_a3c.engines.cluster.ray import Blueprint

    settings = remote.pack_settings(record.config, record.scenario, record.restarts)
    return ClusterEngine(
        hosts=record.config.hosts,
        device=record.config.device,
        blueprint=Blueprint(remote.build_server, remote.build_host, settings),
        state=capture_state(model, progress),
        progress=progress,
        logger_called=outputs.loggers,
        add_gif=lambda message: outputs.add_gif(remote.unpack_gif(message)),
        log=outputs.log,
    )


def connect_to_cluster(record: RunRecord) -> contextlib.AbstractContextManager[None]:
    """Connects to the cluster of a run, for the length of the context."""
    from doom_a3c.engines.cluster.ray import connect  # late, as above

    namespace = f"{record.name}-{os.getpid()}"
    return connect(record.config.address, namespace, gpu=record.config.device == "gpu")
