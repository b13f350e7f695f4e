"""The values that a run would use and their sources, as --print-settings and --scenario X --help show them."""

import contextlib
import dataclasses
import json
import re

import pytest

from doom_a3c.cli import train
from doom_a3c.run.checkpoints.checkpoint import save
from doom_a3c.run.launch import make_new_run
from doom_a3c.settings import catalog
from doom_a3c.settings.config import Config
from doom_a3c.settings.fields import settings_of, to_flat
from doom_a3c.settings.games import find_game_kind
from doom_a3c.settings.scenarios import Scenario, to_plain
from doom_a3c.settings.sources import Layer, find_source, find_sources, flatten, merge

NAMES = sorted(catalog.list_scenario_files())
TABLES = ("game", "observation", "network")


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def show(capsys):
    """Calls train.py with --print-settings; returns value and source of each setting by path."""

    def call(*arguments):
        assert train.main([*arguments, "--print-settings"]) == 0
        header, *lines = capsys.readouterr().out.splitlines()
        assert header.split() == ["setting", "value", "source"]
        rows = (re.split(r" {2,}", line.replace("] ", "].", 1)) for line in lines)
        return {path.replace("[", "").replace("]", ""): (value, source) for path, value, source in rows}

    return call


def catch_record(monkeypatch, *arguments):
    """Returns the record with which train.py would train."""
    records = []

    @contextlib.contextmanager
    def catch(record, *others):
        records.append(record)
        raise SystemExit
        yield

    monkeypatch.setattr(train, "open_session", catch)
    with pytest.raises(SystemExit):
        train.main(list(arguments))
    return records[0]


def read_values(record):
    """Returns the values of a record by path, formatted as in the table."""
    flat, plain = to_flat(record.config), to_plain(record.scenario)
    values = {f"training.{name}": one.format(flat[name]) for name, one in settings_of(Config).items()}
    return values | {path: json.dumps(value) for path, value in flatten({key: plain[key] for key in TABLES})}


def find_default(record, path):
    table, _, name = path.partition(".")
    if table == "training":
        return to_flat(Config())[name]
    kind = (
        find_game_kind(to_plain(record.scenario)["game"]) if table == "game" else type(getattr(Scenario(name="x"), table))
    )
    return dataclasses.asdict(kind())[name]


def read_file(source):
    """Returns the values that a source file sets, by path."""
    (file,) = re.findall(r"^(?:file|base) \((.+)\.toml\)$", source)
    tables = catalog.tomllib.loads(catalog._list_own_files()[file].read_text())
    return dict(flatten({**tables, "game": {**tables.get("game", {}), "shaping": tables.get("shaping", {})}}))


@pytest.mark.parametrize("name", NAMES)
def test_shown_settings_match_those_of_the_run(show, monkeypatch, name):
    shown = show("--scenario", name, "--workers", "3")
    record = catch_record(monkeypatch, "--scenario", name, "--workers", "3")
    assert {path: value for path, (value, _) in shown.items()} == read_values(record)
    values = dict(flatten({key: to_plain(record.scenario)[key] for key in TABLES}))
    values |= {f"training.{name}": value for name, value in to_flat(record.config).items()}
    assert {path for path, (_, source) in shown.items() if source == "flag"} == {"training.scenario", "training.workers"}
    for path, (_, source) in shown.items():
        if source == "default":
            assert values[path] == find_default(record, path), path
        elif source.endswith(".toml)"):
            assert json.dumps(read_file(source)[path]) == json.dumps(values[path]), path
        else:
            assert source in ("flag", f"file ({name}.cfg)") or source.startswith("cfg ("), (path, source)


MINE = """
base = "basic"
[game]
frame_skip = 2
[game.settings]
render_hud = true
[shaping]
HEALTH = { gain = 0.5 }
[training]
discount = 0.5
frames = "1M"
"""


def test_flags_override_files_then_bases_then_defaults(show, folder):
    (folder / "mine.toml").write_text(MINE)
    shown = show("--scenario", "mine.toml", "--frames", "2,000", "--rollout-length", "8")
    assert {
        path: shown[path]
        for path in shown
        if path.rpartition(".")[2]
        in (
            *("frames", "rollout_length", "discount", "learning_rate", "gae_lambda", "value_cost", "frame_skip"),
            *("render_hud", "render_decals", "wad", "gain"),
        )
    } == {
        "training.frames": ("2,000", "flag"),
        "training.rollout_length": ("8", "flag"),
        "training.discount": ("0.5", "file (mine.toml)"),
        "training.learning_rate": ("0.0005", "base (basic.toml)"),
        "training.gae_lambda": ("0.95", "base (base/doom.toml)"),
        "training.value_cost": ("0.5", "default"),
        "game.frame_skip": ("2", "file (mine.toml)"),
        "game.settings.render_hud": ("true", "file (mine.toml)"),
        "game.settings.render_decals": ("false", "base (base/doom.toml)"),
        "game.wad": ('"basic.wad"', "cfg (basic.cfg)"),
        "game.shaping.HEALTH.gain": ("0.5", "file (mine.toml)"),
    }
    flags = show("--scenario", "mine.toml", "--frame-skip", "3", "--shaping", "HEALTH=1", "--no-vtrace")
    assert flags["game.frame_skip"] == ("3", "flag")
    assert flags["game.shaping.HEALTH.gain"] == ("1.0", "flag")
    assert flags["training.vtrace"] == ("off", "flag")


def test_settings_of_a_resumed_run_come_from_its_checkpoint(show, folder):
    (folder / "mine.toml").write_text('base = "cartpole"\n[training]\ndiscount = 0.5\nminutes = 3.0\n')
    record = make_new_run({"scenario": "mine.toml", "frames": 5000})
    (folder / "models").mkdir()
    save(folder / "models" / "last.ckpt", {}, record._replace(counters=record.counters._replace(frames=10**4)))
    before = sorted(folder.rglob("*"))
    shown = show("--resume", "--rollout-length", "8")
    assert sorted(folder.rglob("*")) == before
    assert shown["training.discount"] == ("0.5", "checkpoint")
    assert shown["training.frames"] == ("5,000", "checkpoint")  # used up: only training needs a larger budget
    assert shown["training.rollout_length"] == ("8", "flag")
    assert shown["training.minutes"] == ("unset", "default")  # limits belong to a session
    assert shown["game.id"] == ('"CartPole-v1"', "checkpoint")
    assert {source for _, source in shown.values()} == {"checkpoint", "flag", "default"}
    other = show("--resume", "--scenario", "cartpole")
    assert other["game.id"] == ('"CartPole-v1"', "file (cartpole.toml)")
    assert other["training.discount"] == ("0.5", "checkpoint")


def test_print_settings_writes_nothing_and_reports_errors(folder, capsys):
    assert train.main(["--print-settings", "--frames", "5M"]) == 0
    assert train.main(["--print-settings", "--resume"]) == 2
    assert train.main(["--print-settings", "--scenario", "bsic"]) == 2
    assert "did you mean basic" in capsys.readouterr().err
    assert list(folder.iterdir()) == []


def read_help(capsys, *arguments):
    with pytest.raises(SystemExit) as ended:
        train.main(list(arguments))
    assert not ended.value.code
    return " ".join(capsys.readouterr().out.split())


@pytest.mark.parametrize("order", [slice(None), slice(None, None, -1)])
def test_a_scenarios_help_shows_values_and_their_sources(capsys, order):
    arguments = [word for part in [("--scenario", "basic"), ("--help",), ("--frames", "1k")][order] for word in part]
    text = read_help(capsys, *arguments)
    assert "[1,000 from flag; frames; 1 or more]" in text
    assert "[30 from file (basic.toml); steps; 1 to 1,024]" in text
    assert "[0.95 from base (base/doom.toml); 0 to 1; goes with --advantage gae]" in text
    assert "[default 0.5; 0 or more]" in text


def test_plain_help_shows_defaults_even_with_other_flags(capsys):
    for arguments in (("--help",), ("-h",), ("--gamma", "3", "--help"), ("--resume", "--help")):
        text = read_help(capsys, *arguments)
        assert "[default 30; steps; 1 to 1,024]" in text
        assert "Scenario files override the defaults" in text
        assert "--print-settings" in text


def test_a_layer_hides_the_values_below_it():
    layers = [
        Layer("a", {"t": {"x": {"p": 1, "q": 2}, "y": 3}}),
        Layer("b", {"t": {"x": 4}}),
        Layer("c", {"t": {"z": {"w": 5}}}),
    ]
    assert merge(layers) == {"t": {"x": 4, "y": 3, "z": {"w": 5}}}
    sources = find_sources(layers)
    assert sources == {"t.x": "b", "t.y": "a", "t.z.w": "c"}
    assert [find_source(sources, path) for path in ("t.x", "t.x.p", "t.none", "t.z.w")] == ["b", "b", "default", "c"]
