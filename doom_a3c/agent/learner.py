"""Learning: a `Learner` per learning thread turns rollouts into updates of the global model."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from doom_a3c.agent.cores import CoreState
from doom_a3c.agent.distributions import Actions, Array
from doom_a3c.agent.inputs import Observations
from doom_a3c.agent.networks import ACNetwork
from doom_a3c.agent.rollouts import Rollout
from doom_a3c.agent.targets import Basis, evaluate_actions, make_estimator
from doom_a3c.algorithm.losses import actor_critic_loss, clip_weights, importance_ratios, normalize
from doom_a3c.algorithm.vtrace import WeightedTargets
from doom_a3c.settings.streams import Stream, make_seed

if TYPE_CHECKING:
    from doom_a3c.settings.config import Config


class Batch(NamedTuple):
    """A prepared rollout, from which any number of gradients can be computed, at any weights."""

    observations: Observations  # [T, B, ...], or [T+1, B, ...] if the targets need the last one
    resets: Array  # [T, B], or [T+1, B]
    core_state: CoreState  # before the first step
    actions: Actions  # [T, B, ...]
    log_probs: Array  # [T, B], of the actions under the policy that played
    basis: Basis  # of the targets: the targets themselves, or the inputs of V-trace

    def select(self, sequences: NDArray[np.intp]) -> Batch:
        """Returns the part of the batch with these sequences; the batch itself if all are selected."""
        if len(sequences) == self.sequences:
            return self
        parts = tf.nest.map_structure(lambda array: np.take(array, sequences, axis=1), self._replace(core_state=()))
        states = tuple(np.take(state, sequences, axis=0) for state in self.core_state)
        return cast(Batch, parts)._replace(core_state=states)

    def cut_sequences(self, length: int, core_state: CoreState) -> Batch:
        """Cuts the batch into T / length * B sequences of `length` steps: first the start of every game, then the rest.

        Args:
            length: steps of a sequence, a divisor of T.
            core_state: the state before each sequence, [T / length * B, core_size] each.
        """

        def cut(array: Array) -> Array:
            parts = np.reshape(array, (-1, length, *array.shape[1:]))
            return np.reshape(np.swapaxes(parts, 0, 1), (length, -1, *array.shape[2:]))

        return cast(Batch, tf.nest.map_structure(cut, self._replace(core_state=())))._replace(core_state=core_state)

    @property
    def sequences(self) -> int:
        """The number of sequences: B games, or more once `cut_sequences` has cut them."""
        return int(self.actions.shape[1])


class LearnerMetrics(NamedTuple):
    """Losses and norms of an update."""

    policy_loss: float
    value_loss: float
    entropy: float  # nats
    uniform_kl: float  # KL(u || pi) in nats, u the uniform policy
    grad_norm: float  # before clipping
    var_norm: float  # of all weights


class PolicyChange(NamedTuple):
    """How far the learning policy pi has moved from the acting policy mu, before an update."""

    kl: float  # KL(mu || pi) in nats
    surrogate_loss: float  # PPO's clipped objective, as a loss; the policy loss if there is nothing to clip
    clip_fraction: float  # of the steps, with a ratio pi / mu beyond the clip range


class Gradients(NamedTuple):
    """Clipped gradients of the mean loss over a minibatch, in the order of the network's parameters."""

    gradients: Sequence[tf.Tensor]
    metrics: LearnerMetrics
    finite: bool  # whether the loss and all gradients are finite; if not, they must not be applied
    change: PolicyChange = PolicyChange(0.0, 0.0, 0.0)
    fits: Sequence[tf.Tensor] = ()  # by batch, [2, N]: the returns, and their differences from the values


class Update(NamedTuple):
    """All updates from a set of rollouts, for the log."""

    made: Sequence[Gradients]  # without the tensors
    minibatches: int
    clips: bool  # whether PPO's clipping applies: a rollout makes several updates


class Learner:
    """Computes gradients on one local copy of the network.

    `prepare` does the part of the targets that does not depend on the weights, once per rollout. Any number of gradients
    can then be computed from it, each at the network's current weights.
    """

    def __init__(self, network: ACNetwork, config: Config, index: int) -> None:
        """`index` distinguishes the learners of a run: each deals minibatches in its own order."""
        self._network, self._config, self._estimator = network, config, make_estimator(config)
        self._random = np.random.default_rng(make_seed(config.seed, Stream.MINIBATCHES, index, 0))
        self._whole = network.compile(("clipped gradients", config), self._compute_clipped)
        self._parts = network.compile(("gradients", config), self._compute_gradients)
        self._combined = network.compile(("combined", config), self._combine)
        self._states = network.compile(("states of sequences", config), self._compute_states)

    def learn(
        self,
        batches: Sequence[Batch],
        frames: Callable[[], int],
        apply: Callable[[Gradients, bool], bool],
        pull: Callable[[], None],
    ) -> Update | None:
        """Makes all updates from `batches`: the first at the network's current weights, each later one at the newest.

        Args:
            batches: prepared rollouts.
            frames: returns the frames played by the run, for the schedules.
            apply: applies gradients to the global model, and returns whether to continue; its second argument is whether
                these are the last gradients.
            pull: copies the newest weights into the network.

        Returns:
            The updates, or None if `apply` ended the learning.
        """
        made: list[Gradients] = []
        for minibatches, last in self.deal_minibatches(batches):
            gradients = self.compute_gradients(minibatches, frames())
            made.append(gradients._replace(gradients=()))
            if not apply(gradients, last):
                return None
            if not last:
                pull()
        return Update(made, self._config.minibatch_count, self._estimator.clip_range is not None)

    def prepare(self, rollout: Rollout) -> Batch:
        """Returns a rollout with the basis of its targets, cut into sequences of `sequence_length` or of single steps."""
        rows = len(rollout.actions) + self._estimator.needs_last_value
        batch = Batch(
            tf.nest.map_structure(lambda array: array[:rows], rollout.observations),
            rollout.resets[:rows],
            rollout.core_state,
            rollout.actions,
            rollout.log_probs,
            self._estimator.prepare(rollout),
        )
        if self._estimator.needs_last_value:
            return batch
        if not batch.core_state:
            return batch.cut_sequences(1, ())
        if (length := self._config.sequence_steps) == self._config.rollout_length:
            return batch
        states = self._states(batch.observations, batch.resets, batch.core_state)
        return batch.cut_sequences(length, tuple(np.asarray(state) for state in states))

    def _compute_states(self, observations: Observations, resets: tf.Tensor, core_state: CoreState) -> CoreState:
        """Returns the core state before each sequence of a rollout, at the network's current weights."""
        length, states = self._config.sequence_steps, [core_state]
        for start in range(0, resets.shape[0] - length, length):
            rows = slice(start, start + length)
            part = tf.nest.map_structure(lambda array, rows=rows: array[rows], observations)
            states.append(self._network.unroll(part, resets[rows], states[-1])[1])
        return tuple(tf.concat(parts, axis=0) for parts in zip(*states, strict=True))

    def deal_minibatches(self, batches: Sequence[Batch]) -> Iterator[tuple[Sequence[Batch], bool]]:
        """Yields the minibatches of each update from `batches`, and whether it is the last update.

        Each epoch shuffles the sequences of each batch and deals them to the minibatches. Without a recurrent core, every
        single step is a sequence, except for V-trace, which needs whole rollouts.
        """
        parts, left = self._config.minibatch_count, self._config.updates_per_rollout
        while left > 0:
            dealt = [np.array_split(self._random.permutation(batch.sequences), parts) for batch in batches]
            for hands in zip(*dealt, strict=True):
                left -= 1
                yield [batch.select(hand) for batch, hand in zip(batches, hands, strict=True)], left == 0

    def compute_gradients(self, batches: Sequence[Batch], frames: int) -> Gradients:
        """Returns the clipped gradients of the mean loss over all steps of `batches`, computed batch by batch.

        `frames`, the number played by the run, is the point reached in the schedules.
        """
        # An array, because TensorFlow caches forever every Python number that it converts to a tensor.
        entropy_cost = np.asarray(self._config.entropy_cost.at(frames, self._config.frames), np.float32)
        if len(batches) == 1:
            combined, measures, *fits = self._whole(*batches[0], entropy_cost)
        else:
            gradients, losses, fits = zip(*(self._parts(*batch, entropy_cost) for batch in batches), strict=True)
            steps = np.array([batch.log_probs.size for batch in batches], np.float32)
            combined, measures = self._combined(gradients, losses, tf.constant(steps / steps.sum()))
        total, *terms = measures.numpy().tolist()
        metrics = LearnerMetrics(*terms[:6])
        finite = bool(np.isfinite([total, metrics.grad_norm]).all())
        return Gradients(combined, metrics, finite, PolicyChange(*terms[6:]), fits)

    def _compute_clipped(self, *inputs: Any) -> tuple[list[tf.Tensor], tf.Tensor, tf.Tensor]:
        """Computes the clipped gradients of a single batch in one call, with the inputs of `_compute_gradients`."""
        gradients, losses, fit = self._compute_gradients(*inputs)
        return *self._combine([gradients], [losses], tf.ones(1)), fit

    def _compute_gradients(
        self,
        observations: Observations,
        resets: tf.Tensor,
        core_state: CoreState,
        actions: tf.Tensor,
        played_log_probs: tf.Tensor,
        basis: Basis,
        entropy_cost: tf.Tensor,
    ) -> tuple[list[tf.Tensor], tf.Tensor, tf.Tensor]:
        network, length, rows = self._network, actions.shape[0], resets.shape[0]
        with tf.GradientTape() as tape:
            output, taken, log_probs = evaluate_actions(network, observations, resets, core_state, actions)
            log_ratios = tf.stop_gradient(tf.reshape(log_probs, (length, -1)) - played_log_probs)
            targets = self._estimator.compute_targets(basis, log_ratios, tf.reshape(output.values, (rows, -1)))
            weights, surrogate_loss, clip_fraction = self._weigh(targets, log_ratios)
            loss = actor_critic_loss(
                log_probs,
                network.distribution.entropy(taken.logits),
                network.distribution.kl_from_uniform(taken.logits),
                taken.values,
                tf.reshape(weights, [-1]),
                tf.reshape(targets.returns, [-1]),
                entropy_cost=entropy_cost,
                uniform_cost=self._config.uniform_cost,
                value_cost=self._config.value_cost,
            )
        # Schulman, "Approximating KL divergence" (2020), estimator k3: low variance, never negative, and unbiased, since
        # mu drew the actions.
        kl = tf.reduce_mean(tf.exp(log_ratios) - 1 - log_ratios)
        change = PolicyChange(kl, loss.policy if surrogate_loss is None else surrogate_loss, clip_fraction)
        fit = tf.reshape(tf.stack([targets.returns, targets.errors]), (2, -1))
        return tape.gradient(loss.total, network.parameters), tf.stack([*loss, *change]), fit

    def _weigh(self, targets: WeightedTargets, log_ratios: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor | None, tf.Tensor]:
        """Returns the weights of log pi in the policy loss, [T, B], and PPO's loss and clip fraction if it clips."""
        advantages = normalize(targets.advantages) if self._config.normalize_advantages else targets.advantages
        weighted = targets.weights * advantages
        if (clip_range := self._estimator.clip_range) is None:
            return weighted, None, tf.zeros(())
        ratios = importance_ratios(log_ratios)
        clipped = tf.clip_by_value(ratios, 1 - clip_range, 1 + clip_range) * advantages
        surrogate_loss = -tf.reduce_mean(tf.minimum(weighted, clipped))
        clip_fraction = tf.reduce_mean(tf.cast(tf.abs(ratios - 1) > clip_range, tf.float32))
        return clip_weights(weighted, advantages, log_ratios, clip_range), surrogate_loss, clip_fraction

    def _combine(
        self, gradients: Sequence[Sequence[tf.Tensor]], losses: Sequence[tf.Tensor], shares: tf.Tensor
    ) -> tuple[list[tf.Tensor], tf.Tensor]:
        """Averages gradients and losses by the `shares` of the batches, which sum to 1, and clips the average."""
        each = tf.unstack(shares, num=len(gradients))

        def average(parts: Sequence[tf.Tensor]) -> tf.Tensor:
            return parts[0] if len(parts) == 1 else tf.add_n([p * share for p, share in zip(parts, each, strict=True)])

        averages = [average(parts) for parts in zip(*gradients, strict=True)]
        clipped, norm = tf.clip_by_global_norm(averages, self._config.max_grad_norm)
        *loss, kl, surrogate_loss, clip_fraction = tf.unstack(average(losses))
        norms = norm, tf.linalg.global_norm(self._network.parameters)
        return clipped, tf.stack([*loss, *norms, kl, surrogate_loss, clip_fraction])
