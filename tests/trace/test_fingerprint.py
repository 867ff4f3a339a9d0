"""The fingerprint of an iteration's calls: equal for the same work in another run, different for other work."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from greyhound.control.runs import of_job
from greyhound.trace import layout
from greyhound.trace.fingerprint import FingerprintTaker
from greyhound.trace.records import RECORD_DTYPE

CALLS = [(layout.GH_OP_ALL_REDUCE, 64, 7), (layout.GH_OP_SEND, 128, 8), (layout.GH_OP_ALL_REDUCE, 64, 7)]
SIZES = {7: 4, 8: 2}


def stream(iterations, calls=CALLS, ragged=None, shuffle=None):
    """Records of whole iterations, a call a microsecond, and the iterations' ends."""
    rows = []
    for number in range(iterations):
        once = [(op, size if ragged is None else ragged + number, comm) for op, size, comm in calls]
        if shuffle is not None:
            shuffle.shuffle(once)
        rows += once
    records = np.zeros(len(rows), dtype=RECORD_DTYPE)
    records["op"], records["bytes"], records["comm"] = zip(*rows, strict=True)
    records["t_ns"] = 1000 * np.arange(1, len(rows) + 1)
    ends = [int(records["t_ns"][(number + 1) * len(calls) - 1]) for number in range(iterations)]
    return records, ends


def take(records, ends, sizes=SIZES, cuts=()):
    taker = FingerprintTaker()
    edges = [0, *sorted(cuts), len(records)]
    for low, high in pairwise(edges):
        part = records[low:high]
        upto = part["t_ns"][-1] if len(part) else -1
        begin = part["t_ns"][0] if len(part) else 0
        taker.push(part, [end for end in ends if begin <= end <= upto], sizes)
    return taker.found


def test_counts_calls_and_bytes_of_one_iteration():
    found = take(*stream(8))
    assert (found.calls, found.bytes, found.ragged) == (3, 256, False)


@given(st.lists(st.integers(0, 24), max_size=6))
def test_cutting_the_stream_anywhere_changes_nothing(cuts):
    assert take(*stream(8), cuts=cuts) == take(*stream(8))


def test_another_run_has_other_hashes_and_the_same_fingerprint():
    renamed = [(op, size, {7: 1000, 8: 2000}[comm]) for op, size, comm in CALLS]
    assert take(*stream(8, renamed), sizes={1000: 4, 2000: 2}) == take(*stream(8))


def test_order_within_an_iteration_does_not_count():
    assert take(*stream(8, shuffle=np.random.default_rng(1))) == take(*stream(8))


@pytest.mark.parametrize(
    ("calls", "sizes"),
    [(CALLS[:2], SIZES), ([*CALLS[:2], (layout.GH_OP_ALL_REDUCE, 65, 7)], SIZES), (CALLS, {7: 4, 8: 4})],
)
def test_other_calls_bytes_or_group_sizes_are_other_work(calls, sizes):
    assert take(*stream(8, calls), sizes=sizes).digest != take(*stream(8)).digest


def test_sizes_that_never_repeat_are_left_out():
    one, other = take(*stream(40, ragged=100)), take(*stream(40, ragged=9000))
    assert one.ragged and one.digest == other.digest


def test_nothing_is_claimed_of_iterations_that_never_agree():
    records, ends = stream(60)
    records["op"] = np.arange(len(records)) % 200  # other operations in each iteration
    assert take(records, ends) is None


def test_a_job_is_its_ranks_in_any_order():
    assert of_job(["a", "b", "b"]) == of_job(["b", "a", "b"]) != of_job(["a", "a", "b"])
