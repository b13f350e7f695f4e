"""Former names of settings, their names in other programs, and removed settings, for messages that give today's name."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from doom_a3c.settings.setting import make_flag


class Name(NamedTuple):
    """A setting's name here, and how its meaning differs from that of the foreign name."""

    name: str
    note: str  # '' if the meaning is the same
    place: str  # the program or the table of a scenario file that has it


_STEPS = "in frames of the game: steps x frame skip"
_SECONDS = "in seconds, such as 90 or 10m"
_WEIGHTS = "takes its weights; --resume continues a run"

# By place: name here, difference, and names in stable-baselines3, CleanRL, Sample Factory, RLlib and earlier versions.
# A foreign name may have several here: the first one that the program, file or function in question knows is meant.
_TABLE = {
    "train.py": (
        ("scenario", "", "env env_id env_name environment task game game_name gym_id config config_file conf_file"),
        ("workers", "", "num_workers n_workers num_rollout_workers num_env_runners num_threads n_jobs num_cpus"),
        ("envs_per_worker", "", "games num_envs_per_worker num_envs_per_env_runner envs_per_actor"),
        ("envs_per_worker", "per worker", "n_envs num_envs num_env num_processes num_actors"),
        ("rollout_length", "", "n_steps num_steps rollout rollout_fragment_length unroll_length nsteps num_rollout_steps"),
        ("rollout_length", "steps of each game; all games together are the batch", "train_batch_size"),
        ("sequence_length", "", "recurrence max_seq_len bptt_length"),
        ("discount", "", "gamma discount_factor discounting"),
        ("gae_lambda", "", "lambda lam gae_tau"),
        ("advantage", "gae or n_step", "use_gae advantage_estimator"),
        ("learning_rate", "", "lr step_size lr_init initial_learning_rate"),
        ("final_learning_rate", "0 anneals to zero", "anneal_lr lr_schedule lr_decay linear_lr_decay use_linear_lr_decay"),
        ("epochs", "", "passes n_epochs num_epochs update_epochs ppo_epoch ppo_epochs num_sgd_iter noptepochs"),
        ("epochs", "1 is A3C, more are PPO", "algo alg algorithm algo_name algorithm_name"),
        ("minibatches", "", "num_minibatches n_minibatches num_mini_batch num_batches_per_epoch nminibatches"),
        ("minibatches", "how many, not how large", "batch_size minibatch_size sgd_minibatch_size mini_batch_size"),
        (
            "clip_range",
            "",
            "ratio_clip clip_coef clip_param clip_ratio ppo_clip_ratio ppo_clip clip_eps eps_clip cliprange",
        ),
        ("target_kl", "", "kl_target lr_schedule_kl_threshold desired_kl"),
        ("entropy_cost", "", "ent_coef entropy_coef entropy_coeff entropy_coefficient entropy_beta exploration_loss_coeff"),
        ("value_cost", "twice stable-baselines3's, the same as CleanRL's", "vf_coef"),
        ("value_cost", "", "value_coef value_loss_coef value_loss_coeff vf_loss_coeff baseline_cost critic_coef"),
        ("max_grad_norm", "", "grad_clip clip_grad clip_grad_norm grad_norm_clip max_gradient_norm gradient_clip"),
        ("normalize_advantages", "", "norm_adv normalize_advantage normalize_adv adv_norm"),
        ("normalize_rewards", "", "normalize_returns norm_reward normalize_reward norm_rewards"),
        ("reward_clip", "", "clip_reward clip_rewards reward_clipping"),
        ("optimizer", "adam or rmsprop", "use_rms_prop opt_type"),
        ("optimizer_epsilon", "", "adam_eps adam_epsilon rms_prop_eps optimizer_eps"),
        ("vtrace", "", "with_vtrace use_vtrace"),
        ("rho_clip", "", "vtrace_rho vtrace_clip_rho_threshold"),
        ("c_clip", "", "vtrace_c"),
        ("rollback_drop", "", "collapse"),
        ("max_policy_lag", "", "max_staleness"),
        ("frame_skip", "", "env_frameskip frameskip action_repeat"),
        ("frames", _STEPS, "total_timesteps n_timesteps num_timesteps timesteps max_timesteps stop_timesteps total_steps"),
        ("frames", _STEPS, "max_steps num_env_steps total_env_steps max_env_steps training_steps"),
        ("frames", "", "train_for_env_steps total_frames num_frames max_num_frames total_environment_frames"),
        ("minutes", "in minutes, or such as 90s", "train_for_seconds max_time time_budget"),
        ("episodes", "", "max_num_episodes n_episodes num_episodes max_episodes"),
        ("target_score", "", "stop_reward reward_threshold target_reward"),
        ("evaluation_episodes", "", "n_eval_episodes num_eval_episodes eval_episodes evaluation_duration"),
        ("evaluate_every", _SECONDS, "eval_freq eval_interval evaluation_interval eval_every"),
        ("checkpoint_every", _SECONDS, "save_freq save_interval checkpoint_freq checkpoint_frequency save_every"),
        ("checkpoint_every", "", "save_every_sec"),
        ("models_dir", "", "train_dir save_dir checkpoint_dir model_dir output_dir save_path"),
        ("logs_dir", "", "tensorboard_log log_dir logdir log_folder"),
        ("logger", "such as wandb", "track with_wandb use_wandb wandb"),
        ("wandb_project", "", "wandb_project_name"),
        ("wandb_entity", "", "wandb_user"),
        ("gif_every", "in episodes; 0 disables", "capture_video save_video record_video video"),
        ("name", "", "exp_name experiment experiment_name run_name tb_log_name"),
        ("device", "gpu, cpu or auto", "cuda use_cuda gpu use_gpu num_gpus gpus"),
        ("device", "cpu", "no_cuda no_gpu"),
        ("seed", "", "random_seed"),
        ("from", _WEIGHTS, "checkpoint load load_model load_checkpoint checkpoint_path model_path pretrained restore"),
        ("resume", "", "load_last_checkpoint resume_from continue_training"),
        ("list_scenarios", "", "list_envs list_games"),
        ("print_settings", "", "print_config show_config dry_run"),
    ),
    "play.py": (
        ("model", "", "checkpoint load load_model load_checkpoint checkpoint_path model_path pretrained restore"),
        ("model", "", "trained_agent"),
        ("model", "the agent to play", "eval eval_only evaluate enjoy test test_only"),
        ("policy", "greedy", "deterministic eval_deterministic greedy"),
        ("policy", "sample", "stochastic sampled"),
        ("window", "", "render render_mode human visualize watch"),
        ("record_episodes", "", "record"),
        ("record_episodes", "0 for none", "no_render no_video"),
        ("record_episodes", "how many", "capture_video save_video record_video video"),
        ("episodes", "", "n_eval_episodes num_eval_episodes eval_episodes"),
        ("out", "", "video_folder output_dir"),
    ),
    "[game]": (
        ("id", "", "env env_id env_name environment gym_id"),
        ("sticky_actions", "", "repeat_action_probability"),
        ("life_loss_terminates", "", "terminal_on_life_loss episodic_life"),
    ),
    "[observation]": (
        ("stack", "", "env_framestack frame_stack framestack num_stack stack_size"),
        ("color", "false is grey", "grayscale gray_scale rgb"),
    ),
    "[network]": (
        ("core", "lstm, skip_lstm, gru, min_gru or none", "use_lstm use_rnn recurrent lstm rnn_type"),
        ("core_size", "", "lstm_hidden_size rnn_size lstm_size lstm_cell_size"),
        ("previous_action", "", "use_prev_action lstm_use_prev_action use_prev_actions"),
        ("previous_reward", "", "use_prev_reward lstm_use_prev_reward use_prev_rewards"),
        ("hidden", "", "net_arch hidden_sizes hidden_size fcnet_hiddens"),
        ("activation", "", "activation_fn nonlinearity fcnet_activation"),
    ),
}

REMOVED = ("replay", "replay_size", "replay_by_advantage", "pool", "mirror")

FOREIGN: dict[str, list[Name]] = {}
for _place, _rows in _TABLE.items():
    for _name, _note, _words in _rows:
        for _word in _words.split():
            FOREIGN.setdefault(_word, []).append(Name(_name, _note, _place))


def find_new_name(word: str, known: Iterable[str]) -> Name | None:
    """Returns the name in `known` for a former or foreign name of a setting; None for any other word."""
    names = {_normalize(name): name for name in known}
    return next((each._replace(name=names[each.name]) for each in _find_foreign(word) if each.name in names), None)


def describe_elsewhere(word: str) -> str:
    """Returns where the setting of a foreign name is, such as ': play.py has --window'; '' for any other word."""
    key = _normalize(word)
    if not (found := FOREIGN.get(key) or FOREIGN.get(key.removeprefix("no_"))):
        return ""
    first = found[0]
    file = first.place.startswith("[")
    there = f"a scenario file has {first.place} {first.name}" if file else f"{first.place} has {make_flag(first.name)}"
    return f": {there}{format_note(first)}"


def format_note(name: Name) -> str:
    """Returns a note such as ' (per worker)' if the setting of the new name differs, else ''."""
    return f" ({name.note})" if name.note else ""


def is_removed(word: str) -> bool:
    """Returns whether a word is the name of a removed setting."""
    return _normalize(word).removeprefix("no_") in REMOVED


def _find_foreign(word: str) -> list[Name]:
    """Returns the names here for a foreign one; that of a negated flag, such as --no-track, may take a value instead."""
    key = _normalize(word)
    plain = FOREIGN.get(key.removeprefix("no_"), ()) if key.startswith("no_") else ()
    return [*FOREIGN.get(key, ()), *(each._replace(name=f"no_{each.name}") for each in plain), *plain]


def _normalize(word: str) -> str:
    return word.strip("-_").replace("-", "_").lower()


_API_NAMES = {  # stable-baselines3's names, and what to use here
    **dict.fromkeys(("A2C", "A3C", "PPO", "RecurrentPPO", "make_vec_env"), "doom_a3c.train(scenario)"),
    **dict.fromkeys(("evaluate", "evaluate_policy"), "agent.play(episodes=100).scores"),
    "predict": "agent.act(observation, state)",
    "learn": "doom_a3c.train(scenario), and doom_a3c.resume(agent.folder, frames=...) to continue",
    "save": "agent.source, the path of its checkpoint, which is saved",
    "get_env": "gymnasium.make('doom_a3c/Basic-v0')",
    "set_env": "doom_a3c.load(path, scenario=...), or env=function",
}


def describe_api_name(name: str) -> str:
    """Returns ': use X' for one of stable-baselines3's names, '' for any other."""
    return f": use {_API_NAMES[name]}" if name in _API_NAMES else ""
