"""Checkpoints: they load as saved, broken files give a one-line error, and no kill leaves half a file."""

import contextlib
import io
import itertools
import json
import os
import pickle
import random
import signal
import subprocess
import sys
import threading
import time
import zipfile

import numpy as np
import pytest
from checkpoint_files import join, record_in, replace_record, split
from fakes import until
from run_fakes import tiny_record
from safetensors import safe_open
from safetensors.numpy import load_file, save_file

from doom_a3c.run.checkpoints.checkpoint import is_whole, load, read_label, read_record, save
from doom_a3c.run.checkpoints.folder import CheckpointFolder
from doom_a3c.settings.errors import UserError
from doom_a3c.settings.fields import to_flat

RECORD = tiny_record(frames=12)
RECORD = RECORD._replace(counters=RECORD.counters._replace(scores=[1.5, -2.0]))


def variables(seed=0):
    generator = np.random.default_rng(seed)
    odd = np.float32([np.nan, np.inf, -0.0, 1e-45])  # bit patterns that arithmetic would not preserve
    return {
        "conv0/kernel": generator.normal(size=(3, 3, 1, 4)).astype(np.float32),
        "conv0/kernel/adam_m": odd,
        "adam_beta_1_power": np.float32(0.9),
        "empty": np.zeros((0, 2), np.float32),
    }


def assert_same(actual, expected):
    assert actual.keys() == expected.keys()
    for name, array in expected.items():
        assert actual[name].dtype == array.dtype
        assert actual[name].shape == array.shape
        assert actual[name].tobytes() == array.tobytes()


def complaint(path):
    """Returns the one-line error of loading `path`."""
    with pytest.raises(UserError) as raised:
        load(path)
    message = str(raised.value)
    assert str(path) in message
    assert len(message.splitlines()) == 1
    return message


@pytest.fixture
def saved(tmp_path):
    path = tmp_path / "model.ckpt"
    save(path, variables(), RECORD)
    return path


def test_a_checkpoint_loads_bit_for_bit(saved):
    checkpoint = load(saved)
    assert_same(checkpoint.variables, variables())
    assert checkpoint.record == RECORD
    assert os.listdir(saved.parent) == [saved.name]


def test_safetensors_alone_reads_a_checkpoint(saved):
    assert_same(load_file(saved), variables())
    with safe_open(saved, "numpy") as file:
        assert json.loads(file.metadata()["record"])["config"] == to_flat(RECORD.config)


def test_saving_the_same_state_gives_the_same_bytes(saved):
    before = saved.read_bytes()
    for _ in range(5):
        save(saved, dict(reversed(variables().items())), RECORD)
        assert saved.read_bytes() == before


def test_non_contiguous_arrays_are_saved_in_logical_order(tmp_path):
    array = np.arange(12, dtype=np.float32).reshape(3, 4)
    odd = {"transposed": array.T, "every second": array[:, ::2], "backwards": array[::-1]}
    save(tmp_path / "odd.ckpt", odd, RECORD)
    for name, found in load(tmp_path / "odd.ckpt").variables.items():
        np.testing.assert_array_equal(found, odd[name])


def test_a_record_is_read_without_the_arrays(saved, monkeypatch):
    monkeypatch.setattr("safetensors.numpy.load", None)
    assert read_record(saved) == RECORD
    assert read_label(saved).run == RECORD.name


def test_saving_again_replaces_the_checkpoint(saved):
    save(saved, variables(1), tiny_record(updates=2))
    assert_same(load(saved).variables, variables(1))
    assert load(saved).record.counters.updates == 2


def test_reading_while_the_file_is_replaced_never_fails(saved, tmp_path):
    save(tmp_path / "larger", {**variables(), "more": np.zeros(10_000, np.float32)}, RECORD)
    kinds, stop = [saved.read_bytes(), (tmp_path / "larger").read_bytes()], threading.Event()
    replaced = []

    def replace():
        for number in itertools.count():
            if stop.is_set():
                return
            (tmp_path / "next").write_bytes(kinds[number % 2])
            (tmp_path / "next").replace(saved)
            replaced.append(number)

    thread = threading.Thread(target=replace)
    thread.start()
    try:
        until(lambda: replaced, "the first replacement")
        for _ in range(1000):
            read_label(saved)
        before = len(replaced)
        until(lambda: len(replaced) > before, "a replacement after the last reading")
    finally:
        stop.set()
        thread.join()


def test_a_failed_save_keeps_the_old_checkpoint(saved):
    with pytest.raises(TypeError, match="JSON"):
        save(saved, variables(1), tiny_record(name=object()))
    assert_same(load(saved).variables, variables())
    assert os.listdir(saved.parent) == [saved.name]


@pytest.mark.parametrize("part", [0.0, 0.01, 0.3, 0.6, 0.9, 0.99, -1, -22])
def test_a_truncated_file_is_refused(saved, part):
    whole = saved.read_bytes()
    saved.write_bytes(whole[: int(part * len(whole))] if 0 <= part < 1 else whole[:part])
    assert "cut off" in complaint(saved)
    for read in (read_record, read_label):
        with pytest.raises(UserError, match="not a complete checkpoint"):
            read(saved)


def changed_bytes(path, step):
    """Rewrites a checkpoint with one byte flipped at a time: every `step`-th, and each of the arrays' bytes."""
    whole = path.read_bytes()
    for offset in {*range(0, len(whole), step), *range(len(whole) - len(split(path)[1]), len(whole))}:
        path.write_bytes(whole[:offset] + bytes([whole[offset] ^ 0xFF]) + whole[offset + 1 :])
        yield offset


@pytest.mark.parametrize("step", [97, pytest.param(1, marks=pytest.mark.tools)])
def test_a_changed_byte_anywhere_is_refused(saved, step):
    for _ in changed_bytes(saved, step):
        complaint(saved)
        assert not is_whole(saved)


def test_a_changed_number_in_the_record_is_refused(saved):
    assert is_whole(saved)
    data = record_in(saved)
    data["progress"]["frames"] += 1
    replace_record(saved, data)
    assert "checksum" in complaint(saved)
    assert not is_whole(saved)


def test_files_that_are_no_checkpoints_are_refused(tmp_path):
    path = tmp_path / "other.ckpt"
    for content in (b"", b"hello\nworld", os.urandom(5000), bytes(5000)):
        path.write_bytes(content)
        assert "not a complete checkpoint" in complaint(path)


def test_a_missing_file_or_a_folder_is_refused(tmp_path):
    assert "there is no checkpoint" in complaint(tmp_path / "nothing.ckpt")
    assert "is a folder" in complaint(tmp_path)


def test_a_zip_is_named_as_an_earlier_development_version(tmp_path):
    path = tmp_path / "old.ckpt"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("checkpoint.json", b'{"format": 5}')
    message = complaint(path)
    assert "earlier development version" in message
    assert "train" in message
    for read in (read_record, read_label):
        with pytest.raises(UserError, match="earlier development version"):
            read(path)
    assert not is_whole(path)


def test_another_programs_model_is_refused(tmp_path):
    save_file({"layer.weight": np.zeros(3, np.float32)}, tmp_path / "model.safetensors", {"format": "pt"})
    assert "no record of a run" in complaint(tmp_path / "model.safetensors")


@pytest.mark.parametrize("record", [{"format": 999}, {}, [1], "text"])
def test_an_unknown_format_is_refused(saved, record):
    replace_record(saved, json.dumps(record))
    assert "format" in complaint(saved)


def test_a_removed_setting_in_the_record_is_named(saved):
    record = record_in(saved)
    record["scenario"]["game"]["mirror"] = True
    replace_record(saved, record)
    message = complaint(saved)
    assert "'mirror'" in message
    assert "removed" in message


@pytest.mark.parametrize("metadata", [None, [], "record", {}, {"record": 5}, {"record": {}}, {"record": "{}"}])
def test_a_header_without_a_valid_record_is_refused(saved, metadata):
    header, arrays = split(saved)
    join(saved, {**header, "__metadata__": metadata}, arrays)
    complaint(saved)


@pytest.mark.parametrize("header", [b"", b"not json", b"\xff\xfe", b"null", b"[]", b"5", b'"text"', b"{}", b'{"a": 1}'])
def test_an_invalid_header_is_refused(tmp_path, header):
    join(tmp_path / "other.ckpt", header, bytes(100))
    assert "not a complete checkpoint" in complaint(tmp_path / "other.ckpt")


def test_loading_runs_no_code(tmp_path):
    class Bomb:
        def __reduce__(self):
            return os.mkdir, (str(tmp_path / "exploded"),)

    payload = pickle.dumps(Bomb())
    arrays = io.BytesIO()
    np.savez(arrays, weights=np.array([Bomb()], dtype=object))
    path = tmp_path / "bomb.ckpt"
    path.write_bytes(payload)
    complaint(path)
    path.write_bytes(arrays.getvalue())
    complaint(path)
    join(path, payload, payload)
    complaint(path)
    assert not (tmp_path / "exploded").exists()


def test_array_names_are_not_used_as_paths(tmp_path):
    odd = {"../escaped": np.zeros(2, np.float32), "/tmp/escaped": np.ones(2, np.float32)}
    folder = tmp_path / "inner"
    folder.mkdir()
    save(folder / "odd.ckpt", odd, RECORD)
    assert_same(load(folder / "odd.ckpt").variables, odd)
    assert [path.name for path in tmp_path.rglob("*")] == ["inner", "odd.ckpt"]


def test_a_folder_keeps_the_two_newest_checkpoints(tmp_path):
    folder = CheckpointFolder(tmp_path)
    for n in range(1, 9):
        folder.save(variables(n), tiny_record(updates=n, frames=300 * n))  # 900 and 1200 must sort as numbers, not as text
        checkpoint = load(folder.last)
        assert checkpoint.record.counters.updates == n
        assert_same(checkpoint.variables, variables(n))
    kept = sorted(load(path).record.counters.updates for path in tmp_path.glob("frames-*.ckpt"))
    assert kept == [7, 8]
    assert len(os.listdir(tmp_path)) == 3


def test_a_second_save_at_the_same_frame_replaces_the_first(tmp_path):
    folder = CheckpointFolder(tmp_path)
    for n in (1, 2):
        folder.save(variables(n), tiny_record(updates=n, frames=100))
    assert load(folder.last).record.counters.updates == 2
    assert len(list(tmp_path.glob("frames-*.ckpt"))) == 1


def test_later_saves_leave_the_best_checkpoint_alone(tmp_path):
    folder = CheckpointFolder(tmp_path)
    folder.save(variables(1), tiny_record(updates=1, frames=100))
    folder.save_best(variables(1), tiny_record(updates=1))
    before = folder.best.read_bytes(), folder.best.stat().st_mtime_ns
    for n in range(2, 10):
        folder.save(variables(n), tiny_record(updates=n, frames=100 * n))
    assert (folder.best.read_bytes(), folder.best.stat().st_mtime_ns) == before
    assert load(folder.best).record.counters.updates == 1


def test_saving_never_writes_into_an_existing_file(tmp_path):
    folder = CheckpointFolder(tmp_path)
    folder.save(variables(1), tiny_record(updates=1, frames=100))
    folder.save_best(variables(1), tiny_record(updates=1))
    paths = [folder.last, folder.best, tmp_path / "frames-000000000100.ckpt"]
    with contextlib.ExitStack() as stack:
        files = [stack.enter_context(path.open("rb")) for path in paths]
        before = [path.read_bytes() for path in paths]
        folder.save(variables(2), tiny_record(updates=2, frames=100))
        folder.save_best(variables(2), tiny_record(updates=2))
        assert [file.read() for file in files] == before
        assert [load(path).record.counters.updates for path in paths] == [2, 2, 2]


def test_a_concurrent_reader_always_finds_a_whole_file(tmp_path):
    folder = CheckpointFolder(tmp_path)
    folder.save(variables(), tiny_record(frames=0))
    stop, broken, reads = threading.Event(), [], []

    def read():
        while not stop.is_set():
            try:
                load(folder.last)
            except UserError as error:
                broken.append(error)
            reads.append(1)

    reader = threading.Thread(target=read)
    reader.start()
    for n in range(60):
        folder.save(variables(n), tiny_record(frames=n // 2))
    stop.set()
    reader.join()
    assert broken == []
    assert len(reads) > 10


def test_leftovers_of_a_killed_save_do_not_block_saving(tmp_path):
    (tmp_path / ".last.ckpt").write_bytes(b"half")
    (tmp_path / ".saving-abc").write_bytes(b"half")
    (tmp_path / ".saving-folder").mkdir()
    folder = CheckpointFolder(tmp_path)
    folder.tidy()
    assert sorted(os.listdir(tmp_path)) == [".last.ckpt", ".saving-folder"]
    for n in (1, 2):
        folder.save(variables(n), tiny_record(updates=n, frames=n))
        assert load(folder.last).record.counters.updates == n


# Imports TensorFlow once and forks a saver for every line of input. The fork is safe: TensorFlow starts its threads at
# the first operation, which only the children reach.
SAVER = """
import os, sys
from pathlib import Path
import numpy as np
from doom_a3c.run.checkpoints.folder import CheckpointFolder
sys.path.append(sys.argv[2])
from run_fakes import tiny_record
folder = CheckpointFolder(Path(sys.argv[1]))
for line in sys.stdin:
    if (child := os.fork()) == 0:
        n = int(line)
        while True:
            variables = {"a": np.full(300_000, n, np.float32), "b": np.full(3, n, np.float32)}
            folder.save(variables, tiny_record(updates=n, frames=n))
            if n == int(line):
                print(os.getpid(), flush=True)
            n += 1
    os.waitpid(child, 0)
"""


@pytest.mark.process
def test_a_kill_at_any_moment_leaves_a_whole_last_checkpoint(tmp_path, root):
    delays = random.Random(0)
    folder = CheckpointFolder(tmp_path)
    saver = subprocess.Popen(
        [sys.executable, "-c", SAVER, str(tmp_path), "tests"],
        cwd=root,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    newest = 0
    with saver:
        for _ in range(12):
            saver.stdin.write(f"{newest + 1}\n")
            saver.stdin.flush()
            child = int(saver.stdout.readline())
            time.sleep(delays.uniform(0, 0.06))
            os.kill(child, signal.SIGKILL)
            checkpoint = load(folder.last)
            n = checkpoint.record.counters.updates
            assert n > newest  # every session's saves work despite what killed ones left behind
            np.testing.assert_array_equal(checkpoint.variables["a"], np.full(300_000, n))
            np.testing.assert_array_equal(checkpoint.variables["b"], np.full(3, n))
            for path in tmp_path.glob("*.ckpt"):
                load(path)
            newest = max(load(path).record.counters.updates for path in tmp_path.glob("frames-*.ckpt"))
        saver.stdin.close()
    folder.save(variables(), tiny_record(updates=7, frames=newest + 1))
    assert load(folder.last).record.counters.updates == 7
