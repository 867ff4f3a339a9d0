"""What the nodes measured beside a verdict: hints become reasons, and what isn't known is said."""

import pytest

from greyhound.control import explain
from greyhound.control.evidence import EvidenceCollector
from greyhound.control.messages import Message, decode, encode
from greyhound.control.node_evidence import NodeEvidence
from greyhound.control.profile_message import in_messages
from greyhound.localize.cause_evidence import Evidence, as_message
from greyhound.localize.model import RankProfile, Suspect, Verdict

BUS = "0000:0b:00.0"
KEY = "ring.5.77"


def profile(rank=5, node=1):
    times = ((1.0,), (0.5,), (0.0,), (0.0,))
    return RankProfile(node, KEY, rank, "00000000:0B:00.0", "work", True, *times)


def evidence(absent=None, **figures):
    values = {}
    for place, value in figures.items():
        scope, _, name = place.partition("_")
        values.setdefault(scope, {}).setdefault({"gpu": BUS, "rank": KEY}.get(scope, ""), {})[name] = value
    return Evidence(10.0, values, absent or {})


def gpu_verdict(kind="gpu"):
    return Verdict((Suspect(kind, (1,), (5,), BUS, reasons=("own time 1.9 x",)),), 0.97)


def test_a_clock_that_fell_is_a_reason_of_the_slow_gpu():
    now, before = (evidence(gpu_sm_mhz=mhz, gpu_sm_max_mhz=1980.0) for mhz in (990.0, 1980.0))
    verdict = explain.explained(gpu_verdict(), [profile()], {1: now}, {1: before})
    (suspect,) = verdict.suspects
    assert suspect.reasons[0] == "own time 1.9 x"
    assert any("990" in reason for reason in suspect.reasons[1:])


def test_other_nodes_figures_are_no_reasons():
    now = {2: evidence(gpu_sm_mhz=500.0, gpu_sm_max_mhz=1980.0)}
    assert explain.explained(gpu_verdict(), [profile()], now, {}) == gpu_verdict()


def test_an_unknown_kind_is_told_by_a_clear_hint():
    now, before = (evidence(rank_throttled_s=share, rank_run_s=0.5) for share in (0.6, 0.0))
    verdict = explain.explained(gpu_verdict("unknown"), [profile()], {1: now}, {1: before})
    assert verdict.suspects[0].kind == "cpu"
    assert explain.explained(gpu_verdict("unknown"), [profile()], {1: before}, {}).suspects[0].kind == "unknown"


def test_what_is_not_known_of_the_suspect_s_node_is_noted():
    now = {1: evidence({"nvml": "MIG"}), 2: evidence({"rdma": "no port"})}
    verdict = explain.explained(gpu_verdict(), [profile()], now, {})
    assert verdict.notes == ("nvml: n/a (MIG)",)
    nobody = explain.explained(Verdict(abstained="why"), [profile()], now, {})
    assert nobody == Verdict(abstained="why")


@pytest.mark.parametrize(
    "bad", [{"seconds": "x"}, {"seconds": 1.0, "values": []}, {"seconds": 1.0, "values": {"gpu": 7}}]
)
def test_evidence_that_cannot_be_read_is_left_out(bad, caplog):
    good = as_message(evidence(gpu_sm_mhz=990.0))
    found = explain.read({0: bad, 1: good, 2: {}})
    assert list(found) == [1]
    assert "evidence of node 0 refused" in caplog.text


def test_a_node_sends_evidence_and_identities_and_they_survive_the_way():
    class Watch:
        key, pid, bus = KEY, 1, BUS

    class Hidden(Watch):
        pid = 0

    collector = EvidenceCollector(sources=[])
    node = NodeEvidence(collector, "n1")
    node.follow([Watch(), Hidden()])
    (done,) = in_messages("run", [], "", node(1000.0, 1010.0))
    heard = decode(encode(Message(0, 1, 2, done))).data.evidence
    assert explain.read({0: heard})[0].seconds == pytest.approx(10.0)
    collector.stop()


def test_a_repair_ticket_s_words_are_found_by_any_form_of_the_bus():
    sent = {1: {"identity": {BUS: {"node": "n1", "bus": BUS, "uuid": "GPU-1", "instances": ["MIG-1"]}}}}
    assert explain.identity(sent, 1, "00000000:0B:00.0") == {"node": "n1", "bus": BUS, "uuid": "GPU-1"}
    assert explain.identity(sent, 0, BUS) is None
    assert explain.identity({1: {"identity": {BUS: 7}}}, 1, BUS) is None
    assert explain.identity({1: {"identity": []}}, 1, BUS) is None
