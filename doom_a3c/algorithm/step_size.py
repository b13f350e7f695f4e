"""A step size controlled by the KL divergence of the policy's updates."""

from __future__ import annotations

from dataclasses import dataclass, replace

FIRST, CHANGE, LEAST = 0.1, 1.5, 1e-4  # the first factor, the ratio of one change, the smallest factor


@dataclass(frozen=True)
class KLStepSize:
    """A factor on the step size that keeps the KL divergence of the updates from a rollout near a target.

    The factor falls when the divergence is above twice the target, and rises, to 1 at most, when it is below half the
    target. This is the rule of PPO's adaptive penalty (Schulman et al. 2017, arXiv:1707.06347, section 4) applied to the
    step size, with its two numbers exchanged: there 1.5 is the band and 2 the change. The factor starts small because an
    optimizer's first steps have full size even for tiny gradients: a few that are ten times too large ruin a network.

    The target belongs to the largest step size of the run, and falls with the step size when a schedule or a roll-back
    reduces it: with a fixed target, the factor would rise and undo the reduction. The divergence grows with the square of
    the step, so the factor still undoes part of it (its square root); but with a target that fell with the square, short
    trainings ended before they had converged.

    All learning threads of a run share one factor, because the divergence includes the changes made by the other threads:
    a thread with its own factor would lower it because of another's updates, until its worker's rollouts hardly count. The
    threads all measure the same divergence, so a change is spread over as many rollouts as there are threads; but until
    the factor first falls, each thread raises it in full.
    """

    target: float  # KL divergence in nats; 0 leaves the factor at 1
    threads: int = 1  # number of learning threads
    value: float = FIRST
    rise: float = CHANGE  # the ratio of one increase

    @classmethod
    def begin(cls, target: float, threads: int = 1) -> KLStepSize:
        return cls(target, threads, FIRST if target else 1.0)

    def adapt(self, kl: float, share: float) -> KLStepSize:
        """Returns the factor after the updates from one rollout.

        Args:
            kl: KL divergence of those updates, in nats.
            share: the step size relative to the schedule's largest, after schedule and roll-backs, 0 to 1.
        """
        target, fall = self.target * share, CHANGE ** (1 / self.threads)
        if not self.target:
            return self
        if not kl <= 2 * target:  # also if NaN
            return replace(self, value=max(LEAST, self.value / fall), rise=fall)
        return replace(self, value=min(1.0, self.value * self.rise)) if kl < target / 2 else self
