"""How episodes of a trained agent are played and shown."""

from __future__ import annotations

from dataclasses import dataclass

from doom_a3c.settings.fields import setting

SHOWING = "what is recorded and shown"


@dataclass(frozen=True, kw_only=True)
class PlaySettings:
    """The settings of play.py that an agent's `play` takes as well."""

    episodes: int = setting(10, "episodes to play, each with a seed of its own", unit="episodes", low=1, high=100_000)
    # Not a seed of the benchmarks, whose games have chosen among trained models or are on the cards.
    seed: int = setting(3_000_000, "seed of the first episode; each next one adds 1", low=0, high=2**31 - 1)
    policy: str | None = setting(
        None,
        "take the likeliest action, or draw from the policy; unset is what scored better when the model was evaluated",
        choices=("greedy", "sample"),
    )
    epsilon: float | None = setting(
        None, "probability of a random action; unset is that of the run's evaluations if greedy, else 0", low=0, high=1
    )
    record: int = setting(
        10,
        "how many of them, the first ones, are recorded as gif and mp4",
        unit="episodes",
        low=0,
        section=SHOWING,
    )
    overlay: str | None = setting(
        None,
        "show beside the game what the network sees, its action probabilities and its value; saliency adds where it looks",
        choices=("plain", "saliency"),
        bare="plain",
        section=SHOWING,
    )
    random_episodes: int = setting(
        20, "episodes of random play to compare the scores with", unit="episodes", low=0, high=10_000, section=SHOWING
    )
