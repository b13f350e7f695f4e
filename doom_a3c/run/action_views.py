"""What films show of an agent's actions: a bar for each choice and number."""

from __future__ import annotations

import numpy as np

from doom_a3c.agent.distributions import Actions, Array, Categorical, Distribution
from doom_a3c.agent.joint_actions import Gaussian, Joint
from doom_a3c.record.films.overlay import ActionView


def view_action(distribution: Distribution, logits: Array, action: Actions) -> list[ActionView]:
    """Returns the views of one action, [E], for logits [P]: probabilities of choices, and numbers with their means.

    Raises:
        TypeError: for a distribution of an unknown kind.
    """
    match distribution:
        case Categorical():
            shares = np.exp(logits - logits.max())
            shares = np.nan_to_num(shares / shares.sum())
            return [ActionView(float(share), f"{100 * share:.0f}%", place == action) for place, share in enumerate(shares)]
        case Gaussian():
            means, taken = (np.clip(numbers, -1, 1) for numbers in (distribution.mode(logits), action))
            return [ActionView((float(m) + 1) / 2, f"{a:+.2f}", True) for m, a in zip(means, taken, strict=True)]
        case Joint():
            parts = distribution.split(logits[None], action[None])
            return [view for part, its, taken in parts for view in view_action(part, its[0], taken[0])]
    raise TypeError(f"no view of {distribution}")
