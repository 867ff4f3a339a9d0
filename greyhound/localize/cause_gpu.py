"""What the figures of a GPU point to."""

from collections.abc import Iterable, Sequence
from statistics import median

from greyhound.localize.cause_evidence import REASONS, Evidence
from greyhound.localize.cause_place import COUNTED_WEIGHT, TIMES_MORE, Hint, Place, a_second, mhz, percent

_CLOCK_DROP = 0.05
_REASON_MORE = 0.2  # share of readings
_IDLE = 0.5
_HARDWARE = ("hw_slowdown", "sw_thermal", "hw_thermal", "power_brake", "board_limit", "reliability")
_BY_SETTING = ("user_clocks", "power_cap", "sync_boost")  # they hold in health, too: told where the clock has fallen


def _is_idle(place: Place) -> bool:
    return (place.now("reason_idle") or 0.0) > _IDLE


def _reasons(place: Place) -> dict[str, float]:
    """Those that hold its clock down more than before, by share of the readings."""
    found = {}
    for name in (*_HARDWARE, *_BY_SETTING):
        share = place.now(f"reason_{name}")
        if share is not None and share - (place.then(f"reason_{name}") or 0.0) >= _REASON_MORE:
            found[name] = share
    return found


def _words(place: Place, reasons: dict[str, float]) -> str:
    parts = [f"{REASONS[name][1]} in {share:.0%} of the readings" for name, share in reasons.items()]
    temperature = place.now("temperature_c")
    if temperature is not None:
        parts.append(f"{temperature:.0f} °C{place.before_text('temperature_c', lambda value: f'{value:.0f} °C')}")
    return "; ".join(parts)


def _gpu_clock(place: Place) -> Iterable[Hint]:
    """The SM clock fell, with the driver's reasons; or the reasons alone where the hardware protects itself."""
    now, then = place.now("sm_mhz"), place.then("sm_mhz")
    reasons = _reasons(place)
    fallen = 1.0 - now / then if now is not None and then else 0.0
    if fallen > _CLOCK_DROP and not _is_idle(place):
        why = _words(place, reasons)
        text = f"its SM clock is {mhz(now or 0.0)}, {mhz(then or 0.0)} before" + (f": {why}" if why else "")
        yield place.hint("gpu", fallen, text)
        return
    held = {name: share for name, share in reasons.items() if name in _HARDWARE}
    if held:
        yield place.hint("gpu", COUNTED_WEIGHT, _words(place, held))


def _gpu_memory_clock(place: Place) -> Iterable[Hint]:
    now, then = place.now("memory_mhz"), place.then("memory_mhz")
    if now is not None and then and 1.0 - now / then > _CLOCK_DROP and not _is_idle(place):
        yield place.hint("gpu", 1.0 - now / then, f"its memory clock is {mhz(now)}, {mhz(then)} before")


def _gpu_held_time(place: Place) -> Iterable[Hint]:
    """The driver counts the time that a clock was held down, also between our readings."""
    for field, words in (("thermal_s", "its temperature"), ("power_s", "its power limit")):
        share = place.risen(field)
        if share is not None:
            text = f"{words} held its clock down {share:.0%} of the time{place.before_text(field, percent)}"
            yield place.hint("gpu", COUNTED_WEIGHT, text)


def _gpu_errors(place: Place) -> Iterable[Hint]:
    for field, words in (("ecc_uncorrected", "uncorrected ECC errors"), ("ecc_corrected", "corrected ECC errors")):
        now = place.more(field, 1e-9, TIMES_MORE)
        if now is not None:
            yield place.hint("gpu", COUNTED_WEIGHT, f"{words}: {a_second(now)}{place.before_text(field, a_second)}")
    if (place.now("rows_pending") or 0.0) > 0:
        yield place.hint("gpu", COUNTED_WEIGHT, "memory rows wait to be remapped: reset it")


def _gpu_links(place: Place) -> Iterable[Hint]:
    """PCIe narrower than the slot allows or slower than before, NVLinks gone; a link may rest at idle."""
    width, most = place.now("pcie_width"), place.now("pcie_max_width")
    if width and most and width < most:
        yield place.hint("link", 1.0 - width / most, f"its PCIe link has {width:.0f} lanes of {most:.0f}")
    now, then = place.now("pcie_generation"), place.then("pcie_generation")
    if now and then and now < then and not _is_idle(place):
        yield place.hint(
            "link", 1.0 - 2.0 ** (now - then), f"its PCIe link is of generation {now:.0f}, {then:.0f} before"
        )
    now, then = place.now("nvlinks"), place.then("nvlinks")
    if now is not None and then and now < then:
        yield place.hint("link", 1.0 - now / then, f"{now:.0f} NVLinks are up, {then:.0f} before")
    for field, words in (("nvlink_errors", "NVLink errors"), ("pcie_replays", "PCIe replays")):
        errors = place.more(field, 1.0, TIMES_MORE)
        if errors is not None:
            text = f"{words}: {a_second(errors)}{place.before_text(field, a_second)}"
            yield place.hint("link", COUNTED_WEIGHT, text)


def slow_beside_others(before: Evidence | None, slow: Evidence, peers: Sequence[Evidence]) -> Iterable[Hint]:
    """Without a healthy time: GPUs whose clock is below that of the others, all of one kind of GPU."""
    clocks = [
        (evidence, name, evidence.get("gpu", name, "sm_mhz"))
        for evidence in (slow, *peers)
        for name in evidence.names("gpu")
    ]
    for name in slow.names("gpu"):
        place = Place("gpu", name, slow, before)
        now = place.now("sm_mhz")
        others = [
            clock
            for evidence, other, clock in clocks
            if clock is not None
            and (evidence is not slow or other != name)
            and evidence.get("gpu", other, "sm_max_mhz") == place.now("sm_max_mhz")
        ]
        if now is None or not others or place.then("sm_mhz") is not None or _is_idle(place):
            continue
        usual = median(others)
        if usual > 0 and 1.0 - now / usual > _CLOCK_DROP:
            why = _words(place, _reasons(place))
            text = f"its SM clock is {mhz(now)}, that of the other GPUs {mhz(usual)}" + (f": {why}" if why else "")
            yield place.hint("gpu", 1.0 - now / usual, text)


RULES = (_gpu_clock, _gpu_memory_clock, _gpu_held_time, _gpu_errors, _gpu_links)
