"""Former names of settings, their names in other programs, and removed settings."""

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

REMOVED = ("replay", "replay_size", "replay_by_advantage", "pool")

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
    "wandb_project_name": "wandb_project",
    "wandb_user": "wandb_entity",
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
    """Returns the name in `known` for a former or foreign name of a setting; None for any other word.

    The new name of a negated flag, such as --no-cuda, need not be negated: it may take a value.
    """
    names = {_normalize(name): name for name in known}
    key = _normalize(word)
    plain = key.removeprefix("no_")
    candidates = (FORMER.get(plain) or OTHERS.get(plain, "")).split()
    prefixes = ("no_", "") if plain != key else ("",)
    return next((names[prefix + one] for prefix in prefixes for one in candidates if prefix + one in names), None)


def explain(word: str) -> str:
    """Returns a note such as ' (per worker)' if the setting of the new name differs, else ''."""
    note = NOTES.get(_normalize(word).removeprefix("no_"))
    return f" ({note})" if note else ""


def is_removed(word: str) -> bool:
    """Returns whether a word is the name of a removed setting."""
    return _normalize(word).removeprefix("no_") in REMOVED


def _normalize(word: str) -> str:
    return word.lstrip("-").replace("-", "_").lower()
