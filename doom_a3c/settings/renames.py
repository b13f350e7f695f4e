"""Former names of settings, and their names in other programs."""

from __future__ import annotations

from collections.abc import Iterable

FORMER = {
    "games": "envs_per_worker",
    "passes": "epochs",
    "ratio_clip": "clip_range",
    "collapse": "rollback_drop",
    "record": "record_episodes",
    "max_staleness": "max_policy_lag",
}

# Names in stable-baselines3, CleanRL and Sample Factory. Some mean one name as a flag, and another in a scenario file.
OTHERS = {
    "env": "scenario id",
    "env_id": "scenario id",
    "num_workers": "workers",
    "n_envs": "envs_per_worker",
    "num_envs": "envs_per_worker",
    "num_envs_per_worker": "envs_per_worker",
    "n_steps": "rollout_length",
    "num_steps": "rollout_length",
    "rollout": "rollout_length",
    "recurrence": "sequence_length",
    "gamma": "discount",
    "lr": "learning_rate",
    "anneal_lr": "final_learning_rate",
    "n_epochs": "epochs",
    "num_epochs": "epochs",
    "update_epochs": "epochs",
    "batch_size": "minibatches",
    "num_minibatches": "minibatches",
    "num_batches_per_epoch": "minibatches",
    "clip_coef": "clip_range",
    "ppo_clip_ratio": "clip_range",
    "ent_coef": "entropy_cost",
    "exploration_loss_coeff": "entropy_cost",
    "vf_coef": "value_cost",
    "value_loss_coeff": "value_cost",
    "norm_adv": "normalize_advantages",
    "normalize_advantage": "normalize_advantages",
    "with_vtrace": "vtrace",
    "total_timesteps": "frames",
    "train_for_env_steps": "frames",
    "train_for_seconds": "minutes",
    "env_frameskip": "frame_skip",
    "env_framestack": "stack",
    "n_eval_episodes": "evaluation_episodes",
    "eval_freq": "evaluate_every",
    "save_every_sec": "checkpoint_every",
    "train_dir": "models_dir",
    "tensorboard_log": "logs_dir",
    "track": "logger",
    "with_wandb": "logger",
    "cuda": "device",
    "capture_video": "gif_every",
    "max_num_episodes": "episodes",
    "exp_name": "name",
    "experiment": "name",
}

# How the setting of the new name differs.
NOTES = {
    "n_envs": "per worker",
    "num_envs": "per worker",
    "batch_size": "how many, not how large",
    "total_timesteps": "skipped frames included",
    "train_for_seconds": "minutes",
    "eval_freq": "seconds",
    "anneal_lr": "0 anneals to zero",
    "track": "such as wandb",
    "with_wandb": "such as wandb",
}


def find_new_name(word: str, known: Iterable[str]) -> str | None:
    """Returns the name in `known` for a former or foreign name of a setting; None for any other word."""
    names = {_normalize(name): name for name in known}
    key = _normalize(word)
    negated = "no_" if key.startswith("no_") else ""
    candidates = FORMER.get(key.removeprefix(negated)) or OTHERS.get(key.removeprefix(negated), "")
    return next((names[negated + one] for one in candidates.split() if negated + one in names), None)


def explain(word: str) -> str:
    """Returns a note such as ' (per worker)' if the setting of the new name differs, else ''."""
    return f" ({NOTES[_normalize(word)]})" if _normalize(word) in NOTES else ""


def _normalize(word: str) -> str:
    return word.lstrip("-").replace("-", "_")
