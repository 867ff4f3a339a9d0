"""Messages survive the way there and back; anything else is refused with the field's name."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from greyhound.control import fields
from greyhound.control import messages as m

texts = st.text(max_size=30)
whole = st.integers(-(2**62), 2**62)
real = st.floats(-fields.REAL_LIMIT, fields.REAL_LIMIT)
samples = st.builds(m.RankSample, texts, whole, st.booleans(), st.booleans(), whole, real, real, whole)
data = st.one_of(
    st.builds(m.Hello, texts, texts, whole),
    st.builds(
        m.IterationBatch,
        st.sampled_from(["waiting", "tracking", "not_intercepted"]),
        st.lists(samples, max_size=3),
        st.lists(texts, max_size=3),
        texts,
    ),
    st.builds(
        m.Report,
        texts,
        whole,
        st.sampled_from(["opened", "closed", "regime", "minor"]),
        whole,
        whole,
        whole,
        whole,
        real,
        real,
        real,
        real,
    ),
    st.builds(m.Bye, texts),
    st.builds(m.Stop, texts),
    st.builds(m.Set, st.sampled_from(["on", "observe", "off"]), real),
    st.builds(m.AbWindow, texts, whole, st.booleans(), whole, real),
    st.builds(m.AbMeasure, texts, whole, whole, whole, real, real, texts),
    st.builds(m.AbStop, texts),
)


@given(st.builds(m.Message, whole, whole, whole, data))
def test_round_trip(message):
    text = m.encode(message)
    assert "\n" not in text
    assert m.decode(text) == message


@given(
    st.text(max_size=60) | st.recursive(st.none() | st.booleans() | st.floats() | st.text(), st.lists).map(json.dumps)
)
def test_any_text_is_a_message_or_a_message_error(text):
    with pytest.raises(m.MessageError):
        m.decode(text)


json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.floats()
    | st.integers()
    | st.integers(300, 4000).map(lambda digits: 10**digits)
    | st.text(max_size=5)
    | st.just("\ud800"),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)


@given(data, st.data())
def test_a_spoilt_field_is_refused_or_harmless(content, draw):
    raw = json.loads(m.encode(m.Message(0, 1, 2, content)))
    name = draw.draw(st.sampled_from(sorted(raw["data"])))
    raw["data"][name] = draw.draw(json_values)
    try:
        decoded = m.decode(json.dumps(raw))
    except m.MessageError as error:
        assert name in str(error)
    else:
        assert type(decoded.data) is type(content)


def test_missing_field_and_unknown_kind():
    with pytest.raises(m.MessageError, match="'pid' is missing"):
        m.decode('{"v":1,"kind":"hello","node":0,"seq":1,"t_ns":1,"data":{"name":"n1","host":"h"}}')
    for text in (
        '{"v":1,"kind":"telepathy","node":0,"seq":1,"t_ns":1,"data":{}}',
        '{"v":2,"kind":"bye","node":0,"seq":1,"t_ns":1,"data":{"reason":""}}',
    ):
        with pytest.raises(m.UnknownKindError):
            m.decode(text)


@pytest.mark.parametrize("number", ["1e999", "-1e13", "NaN", "-Infinity", "9" * 400, "-" + "9" * 4000])
def test_number_beyond_all_sense_is_refused(number):
    report = m.encode(m.Message(0, 1, 2, m.Report("ring", 0, "opened", 1, 1, 1, 1, 0.25, 1.0, 1.0, 1.0)))
    with pytest.raises(m.MessageError, match="'healthy_s': not a number"):
        m.decode(report.replace("0.25", number))


def test_text_that_cannot_be_written_anywhere_is_refused():
    bye = m.encode(m.Message(0, 1, 2, m.Bye("why")))
    with pytest.raises(m.MessageError, match="Unicode"):
        m.decode(bye.replace("why", "\\ud800"))
    assert m.decode(bye.replace("why", "\\ud83d\\ude00")).data == m.Bye("\N{GRINNING FACE}")


envelopes = st.fixed_dictionaries(
    {"v": st.just(1) | json_values, "kind": st.sampled_from(["hello", "iteration", "report", "bye", "stop"])},
    optional={
        "node": whole | json_values,
        "seq": whole | json_values,
        "t_ns": whole | json_values,
        "data": json_values,
    },
)


@given(envelopes, st.integers(0, 3), st.text(max_size=2))
def test_nothing_but_a_message_error_leaves_decode(raw, cut, inserted):
    text = json.dumps(raw)
    for spoilt in (text, text[: len(text) - cut] + inserted, inserted + text, "[" * 10**5, '{"v":' * 10**4):
        try:
            m.decode(spoilt)
        except m.MessageError:
            continue
