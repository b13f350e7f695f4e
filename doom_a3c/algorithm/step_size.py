"""A step size that follows the KL divergence of the policy's updates."""

from __future__ import annotations

from dataclasses import dataclass, replace

FIRST, CHANGE, LEAST = 0.1, 1.5, 1e-4


@dataclass(frozen=True)
class KLStepSize:
    """A factor of the step size, by which the updates from a rollout change the policy by about the target KL divergence.

    It falls where their divergence is above twice the target, and rises, to 1 at most, where it is below half of it: the
    rule of PPO's adaptive penalty (Schulman et al. 2017, arXiv:1707.06347, section 4), for the step size, and with its two
    numbers exchanged: there 1.5 is the band and 2 the change. It begins small, as an optimizer's first steps are of full
    size whatever the gradients: a few of ten times the step size spoil a network for good.

    The target is that of the largest step size of the run, and falls with the step size where a schedule or a roll-back
    makes that smaller. A fixed one makes up for those, by a factor that rises. Where the divergence goes with the square of
    the step, the factor still makes up for the square root; a target that falls with the square left short trainings
    unfinished.

    One serves all learning threads of a run. The divergence counts what the others have changed, too: with factors of
    their own one falls for what another has done, and what its worker plays is learned from no more. A change is spread
    over as many rollouts as there are threads, which all see the same divergence; but until it falls for the first time,
    each raises it in full.
    """

    target: float  # nats; 0 leaves the factor at 1
    threads: int = 1
    value: float = FIRST
    rise: float = CHANGE

    @classmethod
    def begin(cls, target: float, threads: int = 1) -> KLStepSize:
        """Returns the factor of the first update."""
        return cls(target, threads, FIRST if target else 1.0)

    def after(self, kl: float, share: float) -> KLStepSize:
        """Returns the factor after a rollout whose updates came to that divergence.

        `share` is the share of the schedule's largest step size that schedule and roll-backs have left.
        """
        target, fall = self.target * share, CHANGE ** (1 / self.threads)
        if not self.target:
            return self
        if not kl <= 2 * target:  # NaN, too
            return replace(self, value=max(LEAST, self.value / fall), rise=fall)
        return replace(self, value=min(1.0, self.value * self.rise)) if kl < target / 2 else self
