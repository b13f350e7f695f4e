"""A Gymnasium vector environment whose games are stepped by a small pool of threads.

Meant for games that spend their time outside Python and release the GIL while they do (ViZDoom waits for its engine
process, so more threads than cores pay off: they hide the latency of the messages behind one another).
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from queue import SimpleQueue
from typing import Any, cast

import gymnasium
import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space, concatenate, create_empty_array

MAX_THREADS = 4  # per vector: with a worker a core, more add only switching (training 12k frames/s with 8, 14k with 4)


class ThreadedVectorEnv(VectorEnv[Any, Any, Any]):
    """Steps `envs` together, resetting each in the step that ends its episode (`AutoresetMode.SAME_STEP`).

    Owns the environments and the threads. Each call hands the games out one by one to whichever thread is free, so a
    slow reset delays nobody; a game is never in two threads at once. An exception in a game is raised by the call.
    As in Gymnasium's own vector environments, `infos["final_obs"]` is an object array with the last observation of the
    episodes that ended, masked by `infos["_final_obs"]`, and other infos are arrays with a mask of their own.
    """

    def __init__(self, make_envs: Sequence[Callable[[], gymnasium.Env[Any, Any]]]) -> None:
        self.num_envs = len(make_envs)
        self.envs: list[Any] = [make() for make in make_envs]
        self._calls: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._threads = [
            threading.Thread(target=self._serve, name=f"games-{index}", daemon=True)
            for index in range(min(self.num_envs, MAX_THREADS))
        ]
        for thread in self._threads:
            thread.start()
        self.metadata = {**self.envs[0].metadata, "autoreset_mode": AutoresetMode.SAME_STEP}
        self.render_mode = self.envs[0].render_mode
        self.single_observation_space = self.envs[0].observation_space
        self.single_action_space = self.envs[0].action_space
        self.observation_space = batch_space(self.single_observation_space, self.num_envs)
        self.action_space = batch_space(self.single_action_space, self.num_envs)

    def reset(self, *, seed: Any = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        """Resets all games; `seed` is one per game, or an int that gives game i the seed `seed + i`."""
        if isinstance(seed, int | np.integer):
            seed = range(int(seed), int(seed) + self.num_envs)
        seeds = [None if seed is None or seed[index] is None else int(seed[index]) for index in range(self.num_envs)]
        results: list[Any] = [None] * self.num_envs

        def reset_one(index: int) -> None:
            results[index] = self.envs[index].reset(seed=seeds[index], options=options)

        self._for_all(reset_one)
        infos: dict[str, Any] = {}
        for index, (_, info) in enumerate(results):
            infos = self._add_info(infos, info, index)
        return self._stacked([observation for observation, _ in results]), infos

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        """Steps all games; see the class for what happens at the end of an episode."""
        rewards = np.zeros(self.num_envs, np.float64)
        terminated = np.zeros(self.num_envs, np.bool_)
        truncated = np.zeros(self.num_envs, np.bool_)
        observations: list[Any] = [None] * self.num_envs
        infos: list[dict[str, Any]] = [{}] * self.num_envs

        def step_one(index: int) -> None:
            env = self.envs[index]
            observations[index], rewards[index], terminated[index], truncated[index], infos[index] = env.step(
                actions[index]
            )
            if terminated[index] or truncated[index]:
                final, final_info = observations[index], infos[index]
                observations[index], info = env.reset()
                infos[index] = {**info, "final_obs": final, "final_info": final_info}

        self._for_all(step_one)
        merged: dict[str, Any] = {}
        for index, info in enumerate(infos):
            if info:
                merged = self._add_info(merged, info, index)
        return self._stacked(observations), rewards, terminated, truncated, merged

    def _stacked(self, observations: list[Any]) -> Any:
        space = self.single_observation_space
        return concatenate(space, observations, cast(Any, create_empty_array(space, self.num_envs)))

    def _for_all(self, call: Callable[[int], None]) -> None:
        """Runs call(i) for every game on the pool and waits; raises the first exception after all have ended."""
        if self.num_envs == 1:
            call(0)
            return
        indices = iter(range(self.num_envs))  # next() on it is atomic
        done: SimpleQueue[BaseException | None] = SimpleQueue()

        def work() -> None:
            error = None
            for index in indices:
                try:
                    call(index)
                except BaseException as exception:
                    error = exception
            done.put(error)

        for _ in self._threads:
            self._calls.put(work)
        errors = [done.get() for _ in self._threads]
        for error in filter(None, errors):
            raise error

    def _serve(self) -> None:
        while (call := self._calls.get()) is not None:
            call()

    def picture(self, final: bool = False) -> Any:
        """Returns the newest picture of the first game, None for the end of an episode: the games have none of it."""
        return None if final else self.envs[0].render()

    def close_extras(self, **kwargs: Any) -> None:
        """Closes all games and ends the threads."""
        try:
            self._for_all(lambda index: self.envs[index].close())
        finally:
            for _ in self._threads:
                self._calls.put(None)
            for thread in self._threads:
                thread.join()
