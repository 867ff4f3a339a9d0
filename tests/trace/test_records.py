"""Symbols, the tracking filter and the layout constants."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from greyhound.trace import layout
from greyhound.trace.records import symbols, timings, top_level
from tests.trace.ring_writer import make_records


def test_layout_constants_come_from_the_header():
    assert int.from_bytes(b"GHRING01", "little") == layout.GH_MAGIC
    assert layout.OPS[layout.GH_OP_REDUCE_SCATTER] == "reduce_scatter"
    assert layout.parse_header("#define GH_A 0x10 /* text */\n#define GH_B (1)\n#define OTHER 2\n") == {"GH_A": 16}
    with pytest.raises(layout.LayoutError, match="GH_NOT_THERE"):
        _ = layout.GH_NOT_THERE


calls = st.tuples(
    st.sampled_from([1, 4, 5, 9, 10]),
    st.integers(0, 2**64 - 1),
    st.integers(0, 2**40),
    st.integers(-1, 1000),
    st.integers(0, 11),
)


@given(st.lists(calls, min_size=1, max_size=50))
def test_symbols_are_equal_exactly_for_equal_calls(rows):
    names = ("op", "comm", "bytes", "peer", "dtype")
    columns = dict(zip(names, (list(column) for column in zip(*rows, strict=True)), strict=True))
    columns["comm"] = np.array(columns["comm"], dtype=np.uint64)
    mixed = symbols(make_records(len(rows), **columns))
    for a in range(len(rows)):
        for b in range(len(rows)):
            assert (mixed[a] == mixed[b]) == (rows[a] == rows[b])


def test_symbols_ignore_what_differs_between_iterations():
    one = make_records(1)
    other = make_records(1, seq=9, t_ns=5, host_ns=3, stream=2, group=4, redop=0, thread=8, aux=1)
    assert symbols(one)[0] == symbols(other)[0]
    assert len(symbols(make_records(0))) == 0


def test_sizes_of_grouped_sends_are_ignored_but_not_of_single_ones():
    sends = make_records(2, op=layout.GH_OP_SEND, bytes=[100, 200], peer=1)
    assert len(set(symbols(sends))) == 2
    sends["flags"] = layout.GH_REC_IN_GROUP
    assert len(set(symbols(sends))) == 1


def test_top_level_leaves_out_what_the_training_did_not_issue():
    op = [1, 9, 16, 32, 37, 64, 129, 5, 5]
    flags = [0, layout.GH_REC_IN_GROUP, 0, 0, 0, 0, 0, layout.GH_REC_BY_HOOK, layout.GH_REC_CAPTURED]
    kept = top_level(make_records(len(op), op=op, flags=flags))
    assert list(kept["op"]) == [1, 9, 64]


def test_timings_are_told_by_the_call_that_they_time():
    """By the fields of struct gh_timing: aux and thread are one word, redop the upper bits of the duration."""
    call = {"comm": 7, "seq": 3, "bytes": 40, "peer": 2, "group": 5, "stream": 6}
    records = make_records(
        3,
        op=[layout.GH_OP_SEND, layout.GH_OP_SEND | layout.GH_OP_TIMING, layout.GH_OP_GROUP],
        t_ns=[2**33 + 1, 2**33 + 9, 1],
        redop=[255, 1, 255],
        host_ns=[4, 10, 4],
        thread=[99, 1, 99],
        aux=[0, 2, 0],
        **call,
    )
    (found,) = timings(records)
    assert {name: found[name] for name in call} == call
    assert (found["op"], found["entry_ns"], found["start_ns"]) == (layout.GH_OP_SEND, 2**33 + 1, 2**33 + 9)
    assert found["duration_ns"] == 2**32 + 10
    assert len(timings(records[:0])) == 0 and list(top_level(records)["op"]) == [layout.GH_OP_SEND]
