"""Checkpoints: what is written comes back, what is broken is said in a line, and no kill leaves half a file."""

import contextlib
import io
import itertools
import json
import os
import pickle
import random
import re
import signal
import subprocess
import sys
import threading
import time
import zipfile

import numpy as np
import pytest
from run_fakes import tiny_record

from doom_a3c.run.checkpoint import label_of, load, save
from doom_a3c.run.folder import CheckpointFolder
from doom_a3c.settings.fields import UserError, plain

RECORD = tiny_record(frames=12)
RECORD = RECORD._replace(counters=RECORD.counters._replace(scores=[1.5, -2.0]))


def variables(seed=0):
    generator = np.random.default_rng(seed)
    odd = np.float32([np.nan, np.inf, -0.0, 1e-45])  # bits that arithmetic would not keep
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
    """Returns the one line that loading `path` is refused with."""
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


def test_a_checkpoint_comes_back_bit_for_bit(saved):
    checkpoint = load(saved)
    assert_same(checkpoint.variables, variables())
    assert checkpoint.record == RECORD
    assert os.listdir(saved.parent) == [saved.name]


def test_a_checkpoint_is_a_zip_of_json_and_a_tensorflow_checkpoint(saved, tmp_path):
    import tensorflow as tf

    with zipfile.ZipFile(saved) as archive:
        assert json.loads(archive.read("checkpoint.json"))["config"] == plain(RECORD.config)
        archive.extractall(tmp_path / "out")
    names = [name for name, _ in tf.train.list_variables(str(tmp_path / "out" / "variables"))]
    assert sorted(names) == sorted(variables())


def test_saving_again_replaces(saved):
    save(saved, variables(1), tiny_record(updates=2))
    assert_same(load(saved).variables, variables(1))
    assert load(saved).record.counters.updates == 2


def test_one_that_is_replaced_while_it_is_read_is_read_as_it_was_or_as_it_is(saved, tmp_path):
    save(tmp_path / "larger", {**variables(), "more": np.zeros(10_000, np.float32)}, RECORD)
    kinds, stop = [saved.read_bytes(), (tmp_path / "larger").read_bytes()], threading.Event()

    def replace():
        for number in itertools.count():
            if stop.is_set():
                return
            (tmp_path / "next").write_bytes(kinds[number % 2])
            (tmp_path / "next").replace(saved)

    thread = threading.Thread(target=replace)
    thread.start()
    try:
        for _ in range(1000):
            label_of(saved)
    finally:
        stop.set()
        thread.join()


def test_a_failed_save_keeps_the_old_one(saved):
    with pytest.raises(TypeError, match="JSON"):
        save(saved, variables(1), tiny_record(name=object()))
    assert_same(load(saved).variables, variables())
    assert os.listdir(saved.parent) == [saved.name]


@pytest.mark.parametrize("part", [0.0, 0.01, 0.3, 0.6, 0.9, 0.99, -1, -22])
def test_a_file_cut_off_is_refused(saved, part):
    whole = saved.read_bytes()
    saved.write_bytes(whole[: int(part * len(whole))] if 0 <= part < 1 else whole[:part])
    assert "not a complete checkpoint" in complaint(saved)


def test_a_changed_byte_is_refused_wherever_it_counts(saved):
    whole = saved.read_bytes()
    with zipfile.ZipFile(saved) as archive:
        stored = [(info.header_offset + 30 + len(info.filename), info.file_size) for info in archive.infolist()]
    for start, size in stored:
        for offset in (0, size // 2, size - 1):
            broken = bytearray(whole)
            broken[start + offset] ^= 0xFF
            saved.write_bytes(broken)
            assert "not a complete checkpoint" in complaint(saved)


@pytest.mark.tools
def test_a_changed_byte_never_ends_in_a_traceback(saved):
    whole = saved.read_bytes()
    for offset in range(len(whole)):
        saved.write_bytes(whole[:offset] + bytes([whole[offset] ^ 0xFF]) + whole[offset + 1 :])
        try:
            checkpoint = load(saved)
        except UserError:
            continue
        assert_same(checkpoint.variables, variables())  # a byte of the zip that means nothing, such as a date


def test_other_files_are_refused(tmp_path):
    path = tmp_path / "other.ckpt"
    for content in (b"", b"hello\nworld", os.urandom(5000), b"PK\x03\x04" + os.urandom(500)):
        path.write_bytes(content)
        assert "not a complete checkpoint" in complaint(path)


def test_a_missing_file_or_a_folder_is_refused(tmp_path):
    assert "there is no checkpoint" in complaint(tmp_path / "nothing.ckpt")
    assert "is a folder, where a file is needed" in complaint(tmp_path)


@pytest.mark.parametrize(
    "members",
    [
        {"readme.txt": b"a zip of something else"},
        {"checkpoint.json": b'{"format": 1}'},
        {"checkpoint.json": b"not json"},
        {"checkpoint.json": b"\xff\xfe"},
        {"checkpoint.json": b'{"format": 1}', "variables.index": b"x" * 100},
        {"checkpoint.json": b'{"format": 1}', "variables.index": b"", "variables.data-00000-of-00001": b""},
    ],
)
def test_a_foreign_zip_is_refused(tmp_path, members):
    path = tmp_path / "foreign.ckpt"
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    assert re.search("not a complete checkpoint|another version", complaint(path))


@pytest.mark.parametrize("record", [{"format": 999}, {}, [1], "text"])
def test_another_format_is_refused(saved, record):
    with zipfile.ZipFile(saved) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    with zipfile.ZipFile(saved, "w") as archive:
        for name, content in {**members, "checkpoint.json": json.dumps(record)}.items():
            archive.writestr(name, content)
    assert "format" in complaint(saved)


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
    with zipfile.ZipFile(path, "w") as archive:
        for name in ("checkpoint.json", "variables.index", "variables.data-00000-of-00001", "data.pkl"):
            archive.writestr(name, payload)
    complaint(path)
    assert not (tmp_path / "exploded").exists()


def test_a_zip_cannot_write_outside(saved, tmp_path):
    with zipfile.ZipFile(saved, "a") as archive:
        archive.writestr("../variables.escaped", b"x")
        archive.writestr("variables./../../escaped", b"x")
    folder = tmp_path / "temporary"
    folder.mkdir()
    assert_same(load(saved).variables, variables())
    assert not list(tmp_path.rglob("*escaped*"))


def test_a_folder_keeps_the_five_newest(tmp_path):
    folder = CheckpointFolder(tmp_path)
    for n in range(1, 9):
        folder.save(variables(n), tiny_record(updates=n, frames=300 * n))  # 900 to 1200 orders as a number, not as a word
        checkpoint = load(folder.last)
        assert checkpoint.record.counters.updates == n
        assert_same(checkpoint.variables, variables(n))
    kept = sorted(load(path).record.counters.updates for path in tmp_path.glob("frames-*.ckpt"))
    assert kept == [4, 5, 6, 7, 8]
    assert len(os.listdir(tmp_path)) == 6


def test_a_second_save_at_the_same_frames_is_the_newest(tmp_path):
    folder = CheckpointFolder(tmp_path)
    for n in (1, 2):
        folder.save(variables(n), tiny_record(updates=n, frames=100))
    assert load(folder.last).record.counters.updates == 2
    assert len(list(tmp_path.glob("frames-*.ckpt"))) == 1


def test_the_best_is_untouched_by_later_saves(tmp_path):
    folder = CheckpointFolder(tmp_path)
    folder.save(variables(1), tiny_record(updates=1, frames=100))
    folder.save_best(variables(1), tiny_record(updates=1))
    before = folder.best.read_bytes(), folder.best.stat().st_mtime_ns
    for n in range(2, 10):
        folder.save(variables(n), tiny_record(updates=n, frames=100 * n))
    assert (folder.best.read_bytes(), folder.best.stat().st_mtime_ns) == before
    assert load(folder.best).record.counters.updates == 1


def test_saving_never_writes_into_the_file_that_has_the_name(tmp_path):
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


def test_a_reader_finds_a_whole_file_at_every_moment(tmp_path):
    folder = CheckpointFolder(tmp_path)
    folder.save(variables(), tiny_record(frames=0))
    stop, broken, reads = threading.Event(), [], []

    def read():
        while not stop.is_set():
            try:
                with zipfile.ZipFile(folder.last) as archive:
                    broken.extend(filter(None, [archive.testzip()]))
            except (OSError, zipfile.BadZipFile) as error:
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


def test_what_a_killed_save_left_behind_is_no_obstacle(tmp_path):
    (tmp_path / ".last.ckpt").write_bytes(b"half")
    (tmp_path / ".saving-abc").write_bytes(b"half")
    folder = CheckpointFolder(tmp_path)
    folder.tidy()
    assert os.listdir(tmp_path) == [".last.ckpt"]
    for n in (1, 2):
        folder.save(variables(n), tiny_record(updates=n, frames=n))
        assert load(folder.last).record.counters.updates == n


# Imports TensorFlow once and forks a saver for every line it is sent: TensorFlow starts its threads at the first
# operation, which only the children get to.
SAVER = """
import os, sys
from pathlib import Path
import numpy as np
from doom_a3c.run.folder import CheckpointFolder
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
            assert n > newest  # every session's saves work in spite of what the killed ones left behind
            np.testing.assert_array_equal(checkpoint.variables["a"], np.full(300_000, n))
            np.testing.assert_array_equal(checkpoint.variables["b"], np.full(3, n))
            for path in tmp_path.glob("*.ckpt"):
                load(path)
            newest = max(load(path).record.counters.updates for path in tmp_path.glob("frames-*.ckpt"))
        saver.stdin.close()
    folder.save(variables(), tiny_record(updates=7, frames=newest + 1))
    assert load(folder.last).record.counters.updates == 7
