"""Display names of metrics."""

from __future__ import annotations

_FAULTS = "faults."  # prefix of fault names, before the kind
TAGS = {
    "training_score": "0 Score/Training",  # TensorBoard sorts groups by name: the first chart of its page
    "reward": "Perf/Reward",
    "shaped_reward": "Perf/Shaped Reward",
    "maximum_reward": "Perf/Maximum Reward",
    "reward_spread": "Perf/Reward Spread",
    "length": "Perf/Length",
    "value": "Perf/Value",
    "frames_per_second": "Perf/Frames per Second",
    "episodes": "Perf/Episodes",
    "updates": "Perf/Updates",
    "policy_lag": "Perf/Policy Lag",
    "push_seconds": "Perf/Push Seconds",
    "reward_by_episode": "By Episode/Reward",
    "maximum_reward_by_episode": "By Episode/Maximum Reward",
    "policy_loss": "Losses/Policy Loss",
    "value_loss": "Losses/Value Loss",
    "entropy": "Losses/Entropy",
    "uniform_kl": "Losses/KL from Uniform",
    "grad_norm": "Losses/Grad Norm",
    "var_norm": "Losses/Var Norm",
    "kl": "Losses/KL",
    "step_factor": "Losses/LR Factor",
    "learning_rate": "Schedules/Learning Rate",
    "entropy_cost": "Schedules/Entropy Cost",
    "epsilon": "Schedules/Epsilon",
    "requests": "Queue/Requests",
    "rollouts": "Queue/Rollouts",
    "prediction_batch": "Queue/Prediction Batch",
    "training_batch": "Queue/Training Batch",
    "hosts": "Cluster/Hosts",
    "pushes_per_second": "Cluster/Pushes per Second",
    "bytes_per_second": "Cluster/Bytes per Second",
    "push_lags": "Cluster/Policy Lag",
    "actions": "Actions/Taken",
    "score": "Evaluation/Score",
    "confirmed_score": "Evaluation/Confirmed Score",
    "rating": "League/Rating",
    "greedy.mean": "Evaluation/Greedy Mean",
    "greedy.std": "Evaluation/Greedy Std",
    "greedy.min": "Evaluation/Greedy Min",
    "greedy.max": "Evaluation/Greedy Max",
    "sampled.mean": "Evaluation/Sampled Mean",
    "sampled.std": "Evaluation/Sampled Std",
    "sampled.min": "Evaluation/Sampled Min",
    "sampled.max": "Evaluation/Sampled Max",
    # The names and definitions of stable-baselines3.
    "rollout.ep_rew_mean": "rollout/ep_rew_mean",
    "rollout.ep_len_mean": "rollout/ep_len_mean",
    "time.fps": "time/fps",
    "train.learning_rate": "train/learning_rate",
    "train.policy_gradient_loss": "train/policy_gradient_loss",
    "train.value_loss": "train/value_loss",
    "train.entropy_loss": "train/entropy_loss",
    "train.approx_kl": "train/approx_kl",
    "train.clip_fraction": "train/clip_fraction",
    "train.explained_variance": "train/explained_variance",
}


def make_tag(name: str) -> str:
    """Returns the tag of a metric, or its name if it has none."""
    if name.startswith("actions."):  # several choices or numbers
        return f"{TAGS['actions']} {name.removeprefix('actions.')}"
    return f"Faults/{name.removeprefix(_FAULTS)}" if name.startswith(_FAULTS) else TAGS.get(name, name)
