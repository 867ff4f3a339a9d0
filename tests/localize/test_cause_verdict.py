"""A verdict gets reasons from its nodes' evidence, and the kind that it shows; who is blamed stays."""

import pytest

from greyhound.localize.cause_evidence import Evidence
from greyhound.localize.cause_verdict import explain
from greyhound.localize.model import RankProfile, Suspect, Verdict

BUS = "0000:65:00.0"


def profile(rank, node):
    return RankProfile(node, f"ring.{rank}", rank, BUS, "w", True, (1.0,), (0.5,), (0.1,), (0.0,))


PROFILES = [profile(0, 0), profile(1, 0), profile(2, 1), profile(3, 1)]


def blamed(kind, ranks=(2,), nodes=(1,), healthy=None, **figures):
    """What becomes of a suspect of this kind, with these figures on node 1."""
    verdict = Verdict((Suspect(kind, nodes, ranks, BUS, reasons=("times",)),), 0.9)
    found = explain(verdict, PROFILES, {1: Evidence(9.0, healthy or {})}, {1: Evidence(9.0, figures)})
    (suspect,) = found.suspects
    assert (suspect.nodes, suspect.ranks, suspect.reasons[0], found.explained) == (nodes, ranks, "times", 0.9)
    return suspect.kind, suspect.reasons[1:]


def test_a_slow_gpu_gets_its_clocks():
    kind, reasons = blamed("gpu", healthy={"gpu": {BUS: {"sm_mhz": 1980.0}}}, gpu={BUS: {"sm_mhz": 990.0}})
    assert (kind, reasons) == ("gpu", ("rank 2: its SM clock is 990 MHz, 1,980 MHz before",))


def test_a_cpu_quota_makes_a_gpu_a_cpu_and_mere_contention_does_not():
    quota = {"ring.2": {"throttled_s": 0.6, "periods": 10.0, "throttled_periods": 9.0}}
    kind, (reason,) = blamed("gpu", rank=quota)
    assert kind == "cpu" and reason.startswith("rank 2: the CPU quota of its cgroup held it back 0.60 s a second")
    assert blamed("gpu", rank={"ring.2": {"wait_s": 0.6}}) == ("gpu", ())
    assert blamed("gpu", ranks=(2, 3), rank=quota) == ("gpu", ())
    slow_too = {BUS: {"sm_mhz": 900.0}}
    assert blamed("gpu", healthy={"gpu": {BUS: {"sm_mhz": 1980.0}}}, rank=quota, gpu=slow_too)[0] == "gpu"


@pytest.mark.parametrize(
    ("said", "figures", "kind"),
    [
        ("input", {"throttled_s": 0.6}, "cpu"),
        ("cpu", {"io_delay_s": 0.5, "read_bytes": 1e8}, "input"),
        ("cpu", {"io_delay_s": 0.5, "write_bytes": 1e8}, "storage"),
        ("cpu", {"io_delay_s": 0.5, "wait_s": 0.4}, "cpu"),
        ("unknown", {"wait_s": 0.4}, "cpu"),
        ("input", {}, "input"),
        ("cpu", {"run_s": 0.9}, "cpu"),
    ],
)
def test_among_the_kinds_of_a_host_the_strongest_evidence_decides(said, figures, kind):
    assert blamed(said, rank={"ring.2": figures})[0] == kind


def test_other_ranks_evidence_is_not_told():
    assert blamed("cpu", rank={"ring.3": {"wait_s": 0.9}}) == ("cpu", ())


def test_a_link_gets_its_ports_and_keeps_its_kind():
    kind, reasons = blamed(
        "link", ranks=(0, 2), nodes=(0, 1), nic={"mlx5_0/1": {"cnp_handled": 5000.0}}, rank={"ring.2": {"wait_s": 0.9}}
    )
    assert kind == "link"
    assert reasons == ("mlx5_0/1: congestion notifications received (CNP): 5,000 a second, before n/a",)


def test_what_is_not_known_is_noted_once_and_nobody_is_named_for_it():
    absent = {"nvml": "no driver"}
    found = explain(
        Verdict(abstained="even"), PROFILES, {}, {0: Evidence(1.0, {}, absent), 1: Evidence(1.0, {}, absent)}
    )
    assert (found.suspects, found.abstained, found.notes) == ((), "even", ("nvml: n/a (no driver)",))
    found = explain(Verdict(), PROFILES, {}, {0: Evidence(1.0, {}, absent), 1: Evidence(1.0)})
    assert found.notes == ("nvml: n/a (no driver) on 1 of 2 nodes",)
    verdict = Verdict((Suspect("gpu", (1,), (2,)),))
    assert explain(verdict, PROFILES, {}, {}) == verdict
