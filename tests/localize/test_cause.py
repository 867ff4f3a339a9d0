"""Evidence before and after, and the hints that it gives."""

import json
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from greyhound.localize.cause import compare, kinds, of_nic, of_rank, told_kind, unknown
from greyhound.localize.cause_evidence import FIELDS, Evidence, Reading, as_message, from_message, row, summarise

BUS, OTHER = "0000:65:00.0", "0000:b3:00.0"
SECOND = 10**9


def of(scope, name="", **figures):
    return Evidence(10.0, {scope: {name: figures}})


def texts(hints):
    return [hint.text for hint in hints]


# -- readings to figures -------------------------------------------------------------------------------------------


def readings(scope, name, count=12, period_s=5, **series):
    """A reading each `period_s`; each figure is a function of the reading's second."""
    return [
        Reading(s * SECOND, {(scope, name): row(scope, {key: value(s) for key, value in series.items()})})
        for s in range(0, count * period_s, period_s)
    ]


def test_counters_become_rates_gauges_medians_and_flags_shares():
    rows = readings(
        "gpu",
        BUS,
        sm_mhz=lambda s: 1980 if s < 30 else 1410,
        thermal_s=lambda s: s / 4,
        reason_hw_thermal=lambda s: s == 10,
    )
    early = summarise(rows, 0, 25 * SECOND)
    assert early.get("gpu", BUS, "sm_mhz") == 1980
    assert early.get("gpu", BUS, "thermal_s") == pytest.approx(0.25)
    assert early.get("gpu", BUS, "reason_hw_thermal") == pytest.approx(1 / 6)
    assert summarise(rows, 30 * SECOND, 60 * SECOND).get("gpu", BUS, "sm_mhz") == 1410


def test_what_could_not_be_read_is_missing_and_never_zero():
    rows = readings("gpu", BUS, sm_mhz=lambda s: math.nan, power_w=lambda s: 300.0)
    evidence = summarise(rows, 0, 60 * SECOND)
    assert evidence.values == {"gpu": {BUS: {"power_w": 300.0}}}
    assert evidence.get("gpu", BUS, "sm_mhz") is evidence.get("gpu", OTHER, "power_w") is None


def test_a_counter_that_begins_anew_or_was_once_unreadable_keeps_its_rate():
    rows = readings("nic", "mlx5_0/1", cnp_sent=lambda s: math.nan if s == 20 else 100 * (s if s < 40 else s - 40))
    assert summarise(rows, 0, 60 * SECOND).get("nic", "mlx5_0/1", "cnp_sent") == pytest.approx(100)


def test_a_short_time_takes_the_readings_beside_it_and_a_far_one_none():
    rows = readings("rank", "r", run_s=lambda s: s / 2)
    assert summarise(rows, 21 * SECOND, 22 * SECOND).get("rank", "r", "run_s") == pytest.approx(0.5)
    assert summarise(rows, 500 * SECOND, 600 * SECOND).values == {}
    assert summarise([], 0, SECOND).values == {}


def test_unknown_fields_are_a_mistake():
    with pytest.raises(KeyError):
        row("gpu", {"sm_ghz": 1.0})


# -- the message ---------------------------------------------------------------------------------------------------


@given(st.dictionaries(st.sampled_from(sorted(FIELDS["rank"])), st.floats(0, 1e12), max_size=5))
def test_a_message_keeps_six_figures(figures):
    evidence = Evidence(12.5, {"rank": {"ring.1.2": figures}} if figures else {}, {"nvml": "not installed"})
    back = from_message(json.loads(json.dumps(as_message(evidence))))
    assert (back.seconds, back.absent) == (12.5, {"nvml": "not installed"})
    for name, value in figures.items():
        assert back.get("rank", "ring.1.2", name) == pytest.approx(value, rel=1e-5)


def test_of_very_many_ranks_those_that_waited_most_are_told():
    ranks = {f"r{n}": dict.fromkeys(FIELDS["rank"], 0.1) | {"wait_s": n / 1000} for n in range(600)}
    gpus = {f"g{n}": dict.fromkeys(FIELDS["gpu"], 1.0) for n in range(8)}
    sent = as_message(Evidence(1.0, {"rank": ranks, "gpu": gpus}))["values"]
    assert len(sent["gpu"]) == 8 and 80 < len(sent["rank"]) < 140
    assert set(sent["rank"]) == {f"r{n}" for n in range(600 - len(sent["rank"]), 600)}


def test_scopes_and_fields_of_later_releases_are_ignored():
    later = {
        "seconds": 1,
        "values": {"dpu": {"d": {"x": "y"}}, "gpu": {BUS: {"colour": "red", "sm_mhz": 5}}},
        "absent": {},
    }
    assert from_message(later).values == {"gpu": {BUS: {"sm_mhz": 5.0}}}


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"seconds": "long"}, "seconds"),
        ({"seconds": math.nan}, "seconds"),
        ({"values": []}, "values"),
        ({"values": {"gpu": {BUS: {"sm_mhz": True}}}}, "sm_mhz"),
        ({"values": {"gpu": {BUS: {"sm_mhz": 10**400}}}}, "sm_mhz"),
        ({"values": {"gpu": {BUS: [1]}}}, BUS),
        ({"values": {"gpu": {"x" * 500: {}}}}, "name"),
        ({"values": {"rank": {str(n): {} for n in range(5000)}}}, "at most"),
        ({"absent": {"nvml": "a\nb"}}, "absent nvml"),
        ({"absent": None}, "absent"),
    ],
)
def test_a_malformed_message_is_refused_by_name(change, why):
    with pytest.raises(ValueError, match=why):
        from_message({"seconds": 1.0, "values": {}, "absent": {}} | change)
    with pytest.raises(ValueError, match="not an object"):
        from_message("text")


# -- GPUs ----------------------------------------------------------------------------------------------------------


def test_a_throttled_gpu_is_named_with_clock_reason_and_temperature():
    before = of("gpu", BUS, sm_mhz=1980, reason_hw_thermal=0.0, temperature_c=61)
    (hint,) = compare(before, of("gpu", BUS, sm_mhz=1410, reason_hw_thermal=0.8, temperature_c=88))
    assert (hint.kind, hint.scope, hint.name) == ("gpu", "gpu", BUS)
    assert hint.weight == pytest.approx(1 - 1410 / 1980)
    assert hint.text == (
        "its SM clock is 1,410 MHz, 1,980 MHz before: thermal slowdown by the hardware in 80% of the readings; "
        "88 °C, 61 °C before"
    )


def test_locked_clocks_are_found_without_a_reason():
    (hint,) = compare(of("gpu", BUS, sm_mhz=1980), of("gpu", BUS, sm_mhz=990))
    assert hint.text == "its SM clock is 990 MHz, 1,980 MHz before"


@pytest.mark.parametrize(
    "now",
    [
        {"sm_mhz": 1950},  # as it varies
        {"sm_mhz": 400, "reason_idle": 1.0},  # it rests: others are slow
        {"sm_mhz": 1975, "reason_power_cap": 1.0},  # as healthy GPUs under load
        {"sm_max_mhz": 1980},
        {},
    ],
)
def test_what_a_healthy_gpu_does_is_no_hint(now):
    assert compare(of("gpu", BUS, sm_mhz=1980, reason_idle=0.0), of("gpu", BUS, **now)) == ()


def test_slow_from_the_start_shows_beside_the_other_gpus():
    def clock(mhz, most=1980):
        return {"sm_mhz": mhz, "sm_max_mhz": most}

    here = Evidence(10.0, {"gpu": {BUS: clock(1200), OTHER: clock(1980)}})
    (hint,) = compare(None, here, [of("gpu", "0000:01:00.0", **clock(1975))])
    assert (hint.name, hint.text) == (BUS, "its SM clock is 1,200 MHz, that of the other GPUs 1,978 MHz")
    another_model = Evidence(10.0, {"gpu": {BUS: clock(1200, 1200), OTHER: clock(1980)}})
    assert compare(None, another_model) == compare(None, of("gpu", BUS, **clock(1200))) == ()


def test_errors_and_narrow_links_are_told():
    before = of("gpu", BUS, pcie_width=16, pcie_max_width=16, pcie_generation=5, nvlinks=18, ecc_corrected=0.0)
    slow = of(
        "gpu", BUS, pcie_width=8, pcie_max_width=16, pcie_generation=4, nvlinks=17, ecc_corrected=3.0, rows_pending=1
    )
    assert set(texts(compare(before, slow))) == {
        "its PCIe link has 8 lanes of 16",
        "its PCIe link is of generation 4, 5 before",
        "17 NVLinks are up, 18 before",
        "corrected ECC errors: 3 a second, 0 a second before",
        "memory rows wait to be remapped: reset it",
    }


# -- CPUs, disks, network --------------------------------------------------------------------------------------------


def test_a_cpu_quota_is_named_by_the_time_it_took():
    before = of("rank", "r", throttled_s=0.0, periods=10.0, throttled_periods=0.0, wait_s=0.01)
    (hint,) = compare(before, of("rank", "r", throttled_s=0.62, periods=10.0, throttled_periods=9.1, wait_s=0.02))
    assert (hint.kind, hint.weight) == ("cpu", 0.62)
    assert hint.text == "the CPU quota of its cgroup held it back 0.62 s a second, in 91% of the periods, 0.00 s before"


def test_threads_that_wait_for_a_cpu_and_pressure_of_the_node():
    before = Evidence(9.0, {"rank": {"r": {"wait_s": 0.02}}, "node": {"": {"psi_cpu_s": 0.05, "steal_s": 0.0}}})
    slow = Evidence(9.0, {"rank": {"r": {"wait_s": 0.45}}, "node": {"": {"psi_cpu_s": 0.8, "steal_s": 0.3}}})
    hints = compare(before, slow)
    assert kinds(hints) == {"cpu": 0.45}
    assert texts(hints)[0] == "its busiest thread waited for a CPU 45% of the time, 2% before"
    assert "the hypervisor took the node's CPUs away 30% of the time, 0% before" in texts(hints)


def test_a_busy_node_that_always_was_is_no_hint():
    always = of("node", psi_cpu_s=0.7, iowait_s=0.3, tcp_retransmits=30.0, tcp_segments=1000.0)
    assert compare(always, always) == ()


@pytest.mark.parametrize(("read", "written", "kind"), [(5e8, 0.0, "input"), (0.0, 5e8, "storage")])
def test_waiting_for_disks_is_input_or_storage(read, written, kind):
    (hint,) = compare(
        of("rank", "r", io_delay_s=0.0), of("rank", "r", io_delay_s=0.4, read_bytes=read, write_bytes=written)
    )
    assert (hint.kind, hint.weight) == (kind, 0.4)


def test_congestion_is_told_with_its_rate_and_does_not_weigh_as_a_share():
    before = of("nic", "mlx5_0/1", cnp_handled=3.0, out_of_sequence=0.0, gbit_s=400, active=1.0, xmit_wait=10.0)
    slow = of("nic", "mlx5_0/1", cnp_handled=4200.0, out_of_sequence=35.0, gbit_s=200, active=1.0, xmit_wait=500.0)
    hints = compare(before, slow)
    assert set(texts(of_nic(hints, "mlx5_0/1"))) == {
        "congestion notifications received (CNP): 4,200 a second, 3 a second before",
        "packets out of sequence: 35 a second, 0 a second before",
        "its data waited to be sent 50.0 times as long as before",
        "its link runs at 200 Gb/s, 400 before",
    }
    assert kinds(hints) == {"link": 0.5}


def test_segments_sent_again_are_a_hint_where_they_grew():
    before, slow = (
        of("node", tcp_retransmits=1.0, tcp_segments=1e4),
        of("node", tcp_retransmits=300.0, tcp_segments=1e4),
    )
    assert texts(compare(before, slow)) == ["3.0% of its TCP segments were sent again, 0.0% before"]


def test_a_rank_gets_its_own_its_gpus_and_its_nodes_hints_only():
    before = Evidence(9.0, {"gpu": {name: {"sm_mhz": 1980.0} for name in (BUS, OTHER, f"{BUS}/1/0")}})
    slow = Evidence(
        9.0,
        {
            "gpu": {name: {"sm_mhz": 990.0} for name in (BUS, OTHER, f"{BUS}/1/0")},
            "rank": {"r": {"wait_s": 0.9}, "s": {"wait_s": 0.9}},
            "node": {"": {"oom_kills": 0.1}},
            "nic": {"mlx5_0/1": {"link_downs": 0.1}},
        },
    )
    found = of_rank(compare(before, slow), "r", "00000000:65:00.0")
    assert [(hint.scope, hint.name) for hint in found] == [
        ("rank", "r"), ("gpu", BUS), ("gpu", f"{BUS}/1/0"), ("node", "")
    ]  # fmt: skip
    assert of_rank(compare(before, slow), "t", "") == found[-1:]


QUOTA = {"throttled_s": 0.6, "periods": 10.0, "throttled_periods": 9.0}


@pytest.mark.parametrize(
    ("said", "rank", "kind"),
    [
        ("input", QUOTA, "cpu"),
        ("cpu", {"io_delay_s": 0.5, "read_bytes": 1e8}, "input"),
        ("cpu", {"io_delay_s": 0.5, "write_bytes": 1e8}, "storage"),
        ("cpu", {"io_delay_s": 0.5} | QUOTA, "cpu"),
        ("input", {"wait_s": 0.6}, "input"),
        ("cpu", {"io_delay_s": 0.15, "read_bytes": 1e8}, "cpu"),
        ("unknown", {"wait_s": 0.4}, "cpu"),
        ("input", {}, "input"),
        ("cpu", {"run_s": 0.9}, "cpu"),
        ("gpu", QUOTA, "cpu"),
        ("gpu", {"wait_s": 0.6}, "gpu"),
        ("link", QUOTA, "link"),
    ],
)
def test_evidence_tells_the_kinds_of_hosts_apart_and_a_quota_from_a_slow_gpu(said, rank, kind):
    assert told_kind(said, of_rank(compare(None, of("rank", "r", **rank)), "r", BUS)) == kind


def test_a_gpu_that_is_slow_by_its_own_figures_stays_one_whatever_the_quota():
    before = of("gpu", BUS, sm_mhz=1980.0)
    slow = Evidence(10.0, {"rank": {"r": QUOTA}, "gpu": {BUS: {"sm_mhz": 990.0}}})
    assert told_kind("gpu", of_rank(compare(before, slow), "r", BUS)) == "gpu"


def test_what_is_not_known_is_said():
    assert unknown(Evidence(1.0, {}, {"nvml": "pynvml isn't installed", "rdma": "none here"})) == (
        "nvml: n/a (pynvml isn't installed)",
        "rdma: n/a (none here)",
    )


@settings(max_examples=30, deadline=None)
@given(st.data())
def test_any_figures_give_hints_of_known_kinds_with_bounded_weights(data):
    def any_evidence():
        return Evidence(
            5.0,
            {
                scope: {"x": data.draw(st.dictionaries(st.sampled_from(sorted(table)), st.floats(0, 1e9), max_size=8))}
                for scope, table in FIELDS.items()
            },
        )

    for hint in compare(any_evidence(), any_evidence(), [any_evidence()]):
        assert hint.kind in ("gpu", "cpu", "link", "storage", "input")
        assert 0.0 <= hint.weight <= 1.0 and np.isfinite(hint.weight)
        assert hint.text.isprintable()
