"""What the figures of a rank's processes, of a node and of its network ports point to."""

from collections.abc import Iterable

from greyhound.localize.cause_place import COUNTED_WEIGHT, QUOTA, TIMES_MORE, Hint, Place, a_second, mhz, percent

_FREQUENCY_DROP = 0.2
_FAULTS_A_S, _SWAPPED_A_S = 50.0, 50.0
_NETWORK_A_S = 10.0
_RETRANSMITTED = 0.01  # of the segments
_NETWORK_WEIGHT = 0.3


def _throttled(place: Place) -> Iterable[Hint]:
    """The CPU quota of its cgroup. The time is that of all its CPUs together, so the share of periods bounds it."""
    seconds = place.risen("throttled_s")
    if seconds is None:
        return
    periods, all_periods = place.now("throttled_periods"), place.now("periods")
    share = periods / all_periods if periods is not None and all_periods else None
    words = f", in {min(share, 1.0):.0%} of the periods" if share is not None else ""
    text = f"the CPU quota of its cgroup held it back {seconds:.2f} s a second{words}"
    weight = min(seconds, share if share is not None else 1.0)
    yield place.hint("cpu", weight, text + place.before_text("throttled_s", _held), QUOTA)


def _held(seconds: float) -> str:
    return f"{seconds:.2f} s"


def _waits_for_cpu(place: Place) -> Iterable[Hint]:
    share = place.risen("wait_s")
    if share is not None:
        text = f"its busiest thread waited for a CPU {share:.0%} of the time{place.before_text('wait_s', percent)}"
        yield place.hint("cpu", share, text)


def _cpu_clock(place: Place) -> Iterable[Hint]:
    now, then = place.now("cpu_mhz"), place.then("cpu_mhz")
    if now is not None and then and 1.0 - now / then > _FREQUENCY_DROP:
        yield place.hint("cpu", 1.0 - now / then, f"its CPU runs at {mhz(now)}, {mhz(then)} before")


def _rank_disk(place: Place) -> Iterable[Hint]:
    for field, words in (("io_delay_s", "it waited for disks"), ("psi_io_s", "its cgroup waited for disks")):
        share = place.risen(field)
        if share is not None:
            yield place.hint(
                _disk_kind(place), share, f"{words} {share:.0%} of the time{place.before_text(field, percent)}"
            )


def _disk_kind(place: Place) -> str:
    """Reading is the training's input, writing its checkpoints."""
    read, written = place.now("read_bytes") or 0.0, place.now("write_bytes") or 0.0
    return "storage" if written > read else "input"


def _faults(place: Place) -> Iterable[Hint]:
    faults = place.more("major_faults", _FAULTS_A_S, TIMES_MORE)
    if faults is not None:
        text = f"pages read back from disk: {a_second(faults)}{place.before_text('major_faults', a_second)}"
        yield place.hint("cpu", COUNTED_WEIGHT, text)


def _node_pressure(place: Place) -> Iterable[Hint]:
    for field, kind, words in (
        ("psi_cpu_s", "cpu", "tasks of the node waited for a CPU"),
        ("psi_io_s", "storage", "tasks of the node waited for disks"),
        ("psi_memory_s", "cpu", "tasks of the node waited for memory"),
        ("steal_s", "cpu", "the hypervisor took the node's CPUs away"),
        ("iowait_s", "storage", "the node's CPUs were idle for want of disks"),
    ):
        share = place.risen(field)
        if share is not None:
            # Of the whole node, so it may be another's: half of what the same share of a rank weighs.
            yield place.hint(kind, share / 2, f"{words} {share:.0%} of the time{place.before_text(field, percent)}")


def _node_memory(place: Place) -> Iterable[Hint]:
    swapped = place.more("swapped_pages", _SWAPPED_A_S, TIMES_MORE)
    if swapped is not None:
        text = f"the node swaps: {a_second(swapped).replace(' a second', ' pages a second')}"
        yield place.hint("cpu", COUNTED_WEIGHT, text + place.before_text("swapped_pages", a_second))
    if (place.now("oom_kills") or 0.0) > 0:
        yield place.hint("cpu", COUNTED_WEIGHT, "the node's kernel killed processes for want of memory")


def _node_retransmits(place: Place) -> Iterable[Hint]:
    def share(lost: float | None, sent: float | None) -> float | None:
        return lost / sent if lost is not None and sent else None

    now = share(place.now("tcp_retransmits"), place.now("tcp_segments"))
    then = share(place.then("tcp_retransmits"), place.then("tcp_segments"))
    if now is not None and now >= _RETRANSMITTED and now >= TIMES_MORE * (then or 0.0):
        before = f"{then:.1%} before" if then is not None else "before n/a"
        yield place.hint("link", _NETWORK_WEIGHT, f"{now:.1%} of its TCP segments were sent again, {before}")


_CONGESTION = {
    "cnp_handled": "congestion notifications received (CNP)",
    "cnp_sent": "congestion notifications sent (CNP)",
    "ecn_marked": "packets marked for congestion (ECN)",
    "out_of_sequence": "packets out of sequence",
    "sequence_errors": "packet sequence errors",
    "timeouts": "acknowledgements that came too late",
    "retransmits": "packets sent again",
    "no_buffer": "packets refused for want of a buffer",
    "symbol_errors": "symbol errors",
}


def _nic_counters(place: Place) -> Iterable[Hint]:
    for field, words in _CONGESTION.items():
        now = place.more(field, _NETWORK_A_S, TIMES_MORE)
        if now is not None:
            text = f"{words}: {a_second(now)}{place.before_text(field, a_second)}"
            yield place.hint("link", _NETWORK_WEIGHT, text)


def _nic_waits(place: Place) -> Iterable[Hint]:
    """Ticks in which data waited to be sent; how long one is depends on the adapter, so only growth tells."""
    now, then = place.now("xmit_wait"), place.then("xmit_wait")
    if now is not None and then and now >= TIMES_MORE * then:
        yield place.hint(
            "link", _NETWORK_WEIGHT, f"its data waited to be sent {now / then:.1f} times as long as before"
        )


def _nic_link(place: Place) -> Iterable[Hint]:
    now, then = place.now("gbit_s"), place.then("gbit_s")
    if now is not None and then and now < then:
        yield place.hint("link", 1.0 - now / then, f"its link runs at {now:.0f} Gb/s, {then:.0f} before")
    active = place.now("active")
    if active is not None and active < 1.0 and place.then("active") == 1.0:
        yield place.hint("link", 1.0 - active, f"its link was down in {1.0 - active:.0%} of the readings")
    if (place.now("link_downs") or 0.0) > 0:
        yield place.hint("link", _NETWORK_WEIGHT, "its link went down and came back")


RANK_RULES = (_throttled, _waits_for_cpu, _cpu_clock, _rank_disk, _faults)
NODE_RULES = (_node_pressure, _node_memory, _node_retransmits)
NIC_RULES = (_nic_counters, _nic_waits, _nic_link)
