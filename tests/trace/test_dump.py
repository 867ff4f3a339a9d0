"""Recorded rings: written, read back, and refused when they are something else."""

import contextlib
import io
import zipfile

import numpy as np
import pytest

from greyhound.bench.ring_writer import RingWriter, make_records
from greyhound.trace import layout
from greyhound.trace.dump import DumpError, DumpWriter, read_dump
from greyhound.trace.records import COMM_DTYPE
from greyhound.trace.ring import Ring


@pytest.fixture
def ring(tmp_path):
    RingWriter(tmp_path / "ring.1.1", 1024, world_rank=5).append(make_records(700))
    opened = Ring.open(tmp_path / "ring.1.1")
    yield opened
    opened.close()


def saved(tmp_path, ring):
    writer = DumpWriter(ring.header)
    writer.add(*ring.read())
    writer.save(tmp_path / "dump.npz", ring.comms())
    return tmp_path / "dump.npz"


def members(**changes):
    """A valid dump's members but for ``changes`` (None: left out), as a file."""
    arrays = {
        "facts": np.frombuffer(b'{"dump": 1}', dtype=np.uint8),
        "records": make_records(3),
        "comms": np.zeros(0, dtype=COMM_DTYPE),
        "gaps": np.zeros(0, dtype=np.int64),
    } | changes
    file = io.BytesIO()
    np.savez(file, **{name: array for name, array in arrays.items() if array is not None})
    file.seek(0)
    return file


def test_a_dump_holds_what_the_ring_held(tmp_path, ring):
    dump = read_dump(saved(tmp_path, ring))
    assert len(dump.records) == 700
    assert dump.records["t_ns"].tolist() == (np.arange(700) * 1_000_000).tolist()
    assert (dump.facts["world_rank"], dump.facts["layout"]) == (5, layout.GH_LAYOUT)
    assert len(dump.gaps) == 0
    assert sorted(path.name for path in tmp_path.iterdir()) == ["dump.npz", "ring.1.1"]


def test_losses_are_marked_where_they_were(tmp_path, ring):
    writer = DumpWriter(ring.header)
    writer.add(make_records(10), 4)  # before the first record nothing is missing from the middle
    writer.add(make_records(20), 0)
    writer.add(make_records(5), 99)
    writer.save(tmp_path / "dump.npz", ring.comms())
    assert read_dump(tmp_path / "dump.npz").gaps.tolist() == [30]


def test_an_empty_recording_is_a_dump_too(tmp_path, ring):
    DumpWriter(ring.header).save(tmp_path / "dump.npz", ring.comms())
    assert len(read_dump(tmp_path / "dump.npz").records) == 0


def test_what_cannot_be_written_leaves_nothing_behind(tmp_path, ring):
    (tmp_path / "taken").mkdir()
    with pytest.raises(OSError):
        DumpWriter(ring.header).save(tmp_path / "taken", ring.comms())
    assert sorted(path.name for path in tmp_path.iterdir()) == ["ring.1.1", "taken"]


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"records": None}, "lacks records"),
        ({"records": np.zeros(3)}, "ring layout"),
        ({"records": make_records(4).reshape(2, 2)}, "ring layout"),
        ({"comms": np.zeros(3)}, "ring layout"),
        ({"gaps": np.zeros(3)}, "gaps"),
        ({"gaps": np.array([[1]])}, "gaps"),
        ({"facts": np.frombuffer(b'{"dump": 7}', dtype=np.uint8)}, "version 7"),
        ({"facts": np.frombuffer(b"[]", dtype=np.uint8)}, "version None"),
        ({"facts": np.frombuffer(b"{", dtype=np.uint8)}, "not a recorded dump"),
        ({"facts": np.frombuffer(b"\xff\xfe\xfd", dtype=np.uint8)}, "dump"),
        ({"facts": np.array([object()], dtype=object)}, "not a recorded dump"),
        ({"facts": np.array(["text"])}, "not a recorded dump"),
    ],
)
def test_what_is_no_dump_is_refused(changes, why):
    with pytest.raises(DumpError, match=why):
        read_dump(members(**changes))


def test_other_archives_and_damage_are_refused(tmp_path, ring):
    other = io.BytesIO()
    with zipfile.ZipFile(other, "w") as archive:
        archive.writestr("facts.npy", b"no array")
    other.seek(0)
    with pytest.raises(DumpError):
        read_dump(other)
    whole = saved(tmp_path, ring).read_bytes()
    for cut in range(4, len(whole), max(len(whole) // 50, 1)):
        with pytest.raises(DumpError):
            read_dump(io.BytesIO(whole[:cut]))


def test_flipped_bytes_never_escape_as_something_else(tmp_path, ring):
    whole = bytearray(saved(tmp_path, ring).read_bytes())
    rng = np.random.default_rng(1)
    for at in rng.integers(0, len(whole), 300).tolist():
        damaged = bytearray(whole)
        damaged[at] ^= int(rng.integers(1, 256))
        with contextlib.suppress(DumpError):
            read_dump(io.BytesIO(damaged))
