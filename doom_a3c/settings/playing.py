"""Settings for playing and recording a trained agent."""

from __future__ import annotations

from dataclasses import dataclass

from doom_a3c.settings.fields import setting

SHOWING = "recording and display"


@dataclass(frozen=True, kw_only=True)
class PlaySettings:
    """The settings of play.py that an agent's `play` takes as well."""

    episodes: int = setting(10, "Episodes to play", unit="episodes", low=1, high=100_000)
    # Differs from the benchmarks' seeds, whose games selected the shipped models or are reported on their cards.
    seed: int = setting(3_000_000, "Seed of the first episode; each later episode adds 1", low=0, high=2**31 - 1)
    policy: str | None = setting(
        None,
        "Take the likeliest choices and mean numbers, or sample; unset is the policy that scored better in evaluation",
        choices=("greedy", "sample"),
    )
    opponent: str | None = setting(
        None, "Checkpoint or model that plays the others in a match of several agents; unset is the agent itself"
    )
    epsilon: float | None = setting(
        None, "Probability of a random action; unset is the run's --evaluation-epsilon if greedy, else 0", low=0, high=1
    )
    record_episodes: int | None = setting(
        None,
        "Number of first episodes to keep as mp4 and gif; unset keeps the best, median and worst; 0 records none",
        unit="episodes",
        low=0,
        section=SHOWING,
    )
    overlay: str | None = setting(
        None,
        "Show observation, action probabilities and value beside the game; saliency also shows where the network looks",
        choices=("plain", "saliency"),
        bare="plain",
        section=SHOWING,
    )
    random_episodes: int = setting(
        20, "Episodes of random play to compare with", unit="episodes", low=0, high=10_000, section=SHOWING
    )
