"""The ring reader against rings written as the hook writes them."""

import os
from dataclasses import astuple

import numpy as np
import pytest

from greyhound.trace import layout
from greyhound.trace.native import copy_records_numpy, load_reader
from greyhound.trace.ring import Ring, RingError, RingNotReady
from tests.trace.ring_writer import RingWriter, make_records


@pytest.fixture
def writer(tmp_path):
    return RingWriter(tmp_path / "ring.1.1")


def test_header_fields(writer):
    header = Ring.open(writer.path).header
    assert (header.world_rank, header.gpu_bus_id, header.capacity) == (3, "0000:65:00.0", 1024)
    assert header.pid == os.getpid()


def test_reads_each_record_once_and_in_order(writer):
    ring = Ring.open(writer.path)
    assert len(ring.read()[0]) == 0
    seen = []
    for first in range(0, 3000, 500):
        writer.append(make_records(500, seq=np.arange(first, first + 500)))
        records, lost = ring.read()
        assert lost == 0
        seen.extend(records["seq"])
    assert seen == list(range(3000))


def test_overrun_is_counted_as_lost(writer):
    ring = Ring.open(writer.path)
    for first in range(0, 2000, 500):
        writer.append(make_records(500, seq=np.arange(first, first + 500)))
    records, lost = ring.read()
    assert lost + len(records) == 2000
    assert lost >= 2000 - 1024
    assert list(records["seq"]) == list(range(lost, 2000))


@pytest.mark.parametrize("copy_records", [copy_records_numpy, load_reader()], ids=["numpy", "installed"])
def test_unwritten_slot_near_head_is_kept_for_later(writer, copy_records):
    writer.append(make_records(10, seq=np.arange(10)))
    writer.slots["commit"][7] = 0
    ring_bytes = np.asarray(writer.bytes)
    records, next_index, lost = copy_records(ring_bytes, 0, 1024)
    assert (list(records["seq"]), next_index, lost) == (list(range(7)), 7, 0)
    writer.slots["commit"][7] = 8
    records, next_index, lost = copy_records(ring_bytes, next_index, 1024)
    assert (list(records["seq"]), next_index, lost) == ([7, 8, 9], 10, 0)


def test_tables(writer):
    ring = Ring.open(writer.path)
    assert len(ring.comms()) == len(ring.counts()) == len(ring.in_flight()) == 0
    slot = layout.GH_OFF_INFLIGHT + 3 * layout.GH_INFLIGHT_BYTES
    writer.bytes[slot : slot + 8].view("<u4")[:] = (77, layout.GH_OP_ALL_GATHER)
    writer.bytes[layout.GH_OFF_COUNTS :][:8].view("<u8")[0] = 5
    assert list(ring.in_flight()["tid"]) == [77]
    assert list(ring.counts()["comm"]) == [5]


def test_control_words_reach_the_file(writer):
    ring = Ring.open(writer.path)
    ring.set_mode(layout.GH_MODE_ON)
    ring.set_master_heartbeat(123)
    assert writer.bytes[layout.GH_OFF_MODE] == layout.GH_MODE_ON
    assert writer.bytes[layout.GH_OFF_MASTER_HEARTBEAT] == 123
    writer.bytes[layout.GH_OFF_STATE :][:8].view("<u4")[:] = (layout.GH_STATE_MUTED, layout.GH_FLAG_COMMS_FULL)
    assert (ring.hook_state, ring.hook_flags) == (layout.GH_STATE_MUTED, layout.GH_FLAG_COMMS_FULL)
    ring.close()
    ring.close()


def test_the_profile_word(writer):
    """Bits 0-31 brackets a second, 32-47 one in so many, 48-63 epoch; 0 is off."""
    ring = Ring.open(writer.path)
    word = writer.bytes[layout.GH_OFF_PROFILE :][:8].view("<u8")
    ring.set_profile(1300, one_in=4, epoch=9)
    assert word[0] == 9 << 48 | 4 << 32 | 1300
    ring.set_profile(0, one_in=4, epoch=9)
    assert word[0] == 0
    for bad in ((-1, 1, 1), (1 << 32, 1, 1), (1, 0, 1), (1, 1 << 16, 1), (1, 1, 1 << 16)):
        with pytest.raises(ValueError, match=f"budget_per_s={bad[0]}, one_in={bad[1]}, epoch={bad[2]}"):
            ring.set_profile(*bad)
    ring.set_mode(layout.GH_MODE_ON)
    assert word[0] == 0


def test_the_counts_of_profiling(writer):
    ring = Ring.open(writer.path)
    writer.bytes[layout.GH_OFF_TIMINGS :][: 8 * 8].view("<u8")[:] = range(8)
    assert astuple(ring.profile_counts) == tuple(range(8))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"magic": 1}, "not a ring"),
        ({"layout": 99}, "layout 99"),
        ({"record_bytes": 32}, "records of 32 bytes"),
        ({"capacity": 1000}, "not a power of two"),
        ({"capacity": 2048}, "truncated or resized"),
        ({"boot_id": "other"}, "another boot"),
    ],
)
def test_wrong_header_is_refused(writer, changes, message):
    writer.write_header(**changes)
    with pytest.raises(RingError, match=message):
        Ring.open(writer.path)


def test_ring_without_magic_is_not_ready(writer):
    writer.write_header(magic=0)
    with pytest.raises(RingNotReady):
        Ring.open(writer.path)


def test_foreign_files_are_refused(writer, tmp_path, monkeypatch):
    link = tmp_path / "link"
    link.symlink_to(writer.path)
    with pytest.raises(RingError, match=str(link)):
        Ring.open(link)
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    with pytest.raises(RingError, match="not a regular file"):
        Ring.open(fifo)
    with pytest.raises(RingError, match="No such file"):
        Ring.open(tmp_path / "none")
    short = tmp_path / "short"
    short.write_bytes(b"GHRING01")
    with pytest.raises(RingError, match="truncated: 8 bytes"):
        Ring.open(short)
    monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
    with pytest.raises(RingError, match="belongs to uid"):
        Ring.open(writer.path)
