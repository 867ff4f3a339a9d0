import pytest
from hypothesis import given
from hypothesis import strategies as st

from greyhound.slurm.jobid import MAX_ARRAY_INDEX, MAX_JOB_ID, MAX_STEP_ID, SPECIAL_STEPS, JobId, JobIdError, parse


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("123", JobId(123)),
        ("123_4", JobId(123, array_task=4)),
        ("123_[9201-10000%500]", JobId(123, pending_tasks="9201-10000%500")),
        ("123_[1,3,5-9:2]", JobId(123, pending_tasks="1,3,5-9:2")),
        ("123+0", JobId(123, het_offset=0)),
        ("123.batch", JobId(123, step="batch")),
        ("123.extern", JobId(123, step="extern")),
        ("123_4.0", JobId(123, array_task=4, step=0)),
        ("123+1.0", JobId(123, het_offset=1, step=0)),
        ("123.0+1", JobId(123, step=0, step_het_offset=1)),
        ("123.interactive", JobId(123, step="interactive")),
    ],
)
def test_known_forms(text, expected):
    assert parse(text) == expected
    assert str(parse(text)) == text


def test_a_list_that_squeue_cut_off():
    assert parse("7_[1,3,...]").truncated


@pytest.mark.parametrize(
    "text",
    ["", "0", " 1", "1 ", "1\n", "-1", "abc", "1.", "1_", "1+", "1_[]", "1_[4-2]", "1_[1%0]", "1.foo", "1_2+3",
     "1_[1-2].0", "99999999999", "67108864", "1.4294967295", "١٢", "1;rm", "1.0.0", "1_[1-2"],
)  # fmt: skip
def test_everything_else_is_refused_with_the_text(text):
    with pytest.raises(JobIdError) as caught:
        parse(text)
    assert repr(text) in str(caught.value)


@st.composite
def job_ids(draw):
    task = draw(st.none() | st.integers(0, MAX_ARRAY_INDEX - 1))
    offset = draw(st.none() | st.integers(0, 127)) if task is None else None
    step = draw(st.none() | st.integers(0, MAX_STEP_ID) | st.sampled_from(SPECIAL_STEPS))
    step_offset = None if step is None else draw(st.none() | st.integers(0, 127))
    return JobId(draw(st.integers(1, MAX_JOB_ID)), task, None, offset, step, step_offset)


@given(job_ids())
def test_round_trip(identity):
    assert parse(str(identity)) == identity


@given(st.text(max_size=30) | st.text(alphabet="0123456789_[]-,%+.batchexn:", max_size=30))
def test_total(text):
    try:
        identity = parse(text)
    except JobIdError:
        return
    assert parse(str(identity)) == identity
