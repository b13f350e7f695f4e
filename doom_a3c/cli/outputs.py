"""The parts of a training run, put together: engine, evaluator, films, logs."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np

from doom_a3c import scenarios
from doom_a3c.checkpoint import CheckpointFolder
from doom_a3c.cli.actors import ActorFactory
from doom_a3c.cli.build import Builder
from doom_a3c.cli.panel import Panel
from doom_a3c.config import Config, worker_count
from doom_a3c.engines.queue import QueueEngine
from doom_a3c.engines.threads import ThreadsEngine, Worker
from doom_a3c.engines.updates import Updater
from doom_a3c.evaluation import Evaluator, games_for
from doom_a3c.model import GlobalModel, State, captured
from doom_a3c.progress import Progress
from doom_a3c.recording import Gif, GifFolder, GifMaker
from doom_a3c.rollouts import Policy
from doom_a3c.scenarios import Scenario
from doom_a3c.settings import plain
from doom_a3c.summaries import Summaries
from doom_a3c.training import Engine, Training


class Run(NamedTuple):
    """What a run starts from."""

    name: str
    restarts: int  # how often it has been resumed
    scenario: Scenario
    config: Config
    builder: Builder
    model: GlobalModel
    progress: Progress
    files: CheckpointFolder
    gifs: Path
    logs: Path
    best_evaluation: float | None  # of its earlier sessions
    policy: str  # the better one in their last evaluation


class Outputs:
    """The running parts of a run: engine, evaluator, gif writer and logs; a context that ends all of them."""

    def __init__(self, run: Run, panel: Panel) -> None:
        config, builder, progress = run.config, run.builder, run.progress
        self._run, self._panel = run, panel
        self._logs: list[Summaries] = []
        self._summaries = self._log("global")
        settings = {**plain(config), "scenario": scenarios.record(run.scenario)}
        self._summaries.text("config", f"```json\n{json.dumps(settings, indent=2)}\n```")

        # As workers play: what is compiled first has fixed shapes, all other numbers of games share one graph.
        self._summaries.graph(Policy(run.model.network).graph(builder.example(config.games)))

        self._gifs = GifFolder(run.gifs)
        self._gif_maker = GifMaker(builder.steps_per_second, self._add_gif)
        self._make_actor = ActorFactory(config, builder, progress, self._gif_maker.add, restarts=run.restarts)
        self._capture: Callable[[], State] = partial(captured, run.model, progress)
        engines = {"threads": self._threads_engine, "queue": self._queue_engine, "cluster": self._cluster_engine}
        self.engine = engines[config.engine]()
        self._evaluator = Evaluator(
            builder.evaluation_env(games_for(config.evaluation_episodes)),
            builder.network("evaluator", config.seed),
            np.random.SeedSequence([config.seed, run.restarts, 2**31]),
            config.evaluation_epsilon,
            lambda faults: progress.add_steps(0, 0, (), faults),
        )
        self.training = Training(
            config,
            capture=self._capture,
            progress=progress,
            evaluator=self._evaluator,
            summaries=self._summaries,
            folder=run.files,
            record={"run": run.name, "restarts": run.restarts, "scenario": scenarios.record(run.scenario)},
            show=panel.show,
            say=panel.say,
            best_evaluation=run.best_evaluation,
            policy=run.policy,
        )

    def _add_gif(self, gif: Gif) -> None:
        self._gifs.add(gif)
        self._summaries.gif("game", gif.data, gif.height, gif.width, self._run.progress.frames)

    def _log(self, name: str) -> Summaries:
        """Returns a new TensorBoard run."""
        self._logs.append(Summaries(self._run.logs / name))
        return self._logs[-1]

    def _threads_engine(self) -> Engine:
        run, stop = self._run, threading.Event()
        workers = [
            Worker(
                index,
                config=run.config,
                model=run.model,
                network=run.builder.network(f"worker_{index}", run.config.seed),
                make_actor=self._make_actor,
                progress=run.progress,
                updates=Updater(run.config, run.model, run.progress, self._log(f"train_{index}")),
                stop=stop,
                example=run.builder.example(run.config.games),
            )
            for index in range(worker_count(run.config))
        ]
        return ThreadsEngine(workers, stop, run.builder.unblock)

    def _queue_engine(self) -> Engine:
        run = self._run
        return QueueEngine(
            config=run.config,
            model=run.model,
            games=[partial(self._make_actor, index) for index in range(worker_count(run.config))],
            make_network=partial(run.builder.network, seed=run.config.seed),
            progress=run.progress,
            summaries=[self._log(f"train_{index}") for index in range(run.config.trainers)],
            unblock=run.builder.unblock,
        )

    def _cluster_engine(self) -> Engine:
        from doom_a3c.cli import remote
        from doom_a3c.engines.cluster import ClusterEngine

        run = self._run
        engine = ClusterEngine(
            hosts=run.config.hosts,
            device=run.config.device,
            settings=remote.settings(run.config, run.scenario, run.restarts),
            make_server=remote.server,
            make_host=remote.host,
            state=self._capture(),
            progress=run.progress,
            make_summaries=self._log,
            add_gif=self._add_gif,
            say=self._panel.say,
        )
        self._capture = engine.capture  # the weights are on the server
        return engine

    def __enter__(self) -> Outputs:
        return self

    def __exit__(self, *error: object) -> None:
        self._evaluator.close()
        self._run.builder.close()
        self._gif_maker.close()
        for log in self._logs:
            log.close()
