"""One line about a job for Slurm's comments: `greyhound: 2 fail-slow, 41 min, 1.34x, S2, n017 gpu3`.

It stands for the whole job, all its steps and runs so far. A comment is a list of parts joined by "; ", of which at
most one is ours (docs/report.md). Pure.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

MARK = "greyhound: "
JOINT = "; "
COMPONENTS_SHOWN = 3
WHY_LETTERS = 60
NOT_TRACKED = "no iteration was found"

_UNITS_S = {"s": 1.0, "min": 60.0, "h": 3600.0, "d": 86_400.0}
_MOST_OF_A_UNIT = 100
_COUNTED = re.compile(r"(\d{1,9}) fail-slow, (\d{1,9}) (s|min|h|d), (\d{1,6}\.\d\d)x", re.ASCII)
_HEALTHY = "no fail-slow"
_STRATEGIES = re.compile(r"S\d(?: S\d)*", re.ASCII)
_UNMONITORED = re.compile(rf"unmonitored \(([^;()\n]{{1,{WHY_LETTERS}}})\)")
_COMPONENT = re.compile(r"[A-Za-z0-9_.:\-]{1,64}(?: [A-Za-z0-9_.:\-]{1,64}){0,2}", re.ASCII)
_NOT_IN_A_REASON = re.compile(r"[;()\s\x00-\x1f\x7f]+")
_WORDS_OF_A_COMPONENT = 3
_HOST_KINDS = ("cpu", "input", "storage")
_NOT_IN_A_NAME = re.compile(r"[^A-Za-z0-9_.:\-]+", re.ASCII)


@dataclass(frozen=True)
class Summary:
    """What happened to a job: seconds in fail-slows, their worst slowdown, and why some of it went by unseen."""

    fail_slows: int = 0
    slow_s: float = 0.0
    worst: float = 0.0
    strategies: tuple[str, ...] = ()
    components: tuple[str, ...] = ()
    unmonitored: str = ""
    watched: bool = False
    """Whether any step was."""

    def __add__(self, other: "Summary") -> "Summary":
        """Both together. A step too short to be tracked beside one that was is worth no word."""
        watched = self.watched or other.watched or self.fail_slows + other.fail_slows > 0
        told = [why for why in (self.unmonitored, other.unmonitored) if why not in ("", NOT_TRACKED)]
        return Summary(
            self.fail_slows + other.fail_slows,
            self.slow_s + other.slow_s,
            max(self.worst, other.worst),
            tuple(sorted({*self.strategies, *other.strategies})),
            tuple(dict.fromkeys((*self.components, *other.components))),
            told[0] if told else "",
            watched,
        )

    @property
    def says_something(self) -> bool:
        """Whether it is worth a line: not for a step that ended before it could be tracked."""
        return self.watched or self.fail_slows > 0 or self.unmonitored not in ("", NOT_TRACKED)

    def text(self) -> str:
        """The line."""
        why = _reason(self.unmonitored) or NOT_TRACKED
        if not self.watched and not self.fail_slows:
            return f"{MARK}unmonitored ({why})"
        parts = [_HEALTHY]
        if self.fail_slows:
            parts = [f"{self.fail_slows} fail-slow, {_duration(self.slow_s)}, {min(self.worst, 999_999):.2f}x"]
        parts += [" ".join(self.strategies)] if self.strategies else []
        parts += self.components[:COMPONENTS_SHOWN]
        parts += [f"unmonitored ({why})"] if why != NOT_TRACKED else []
        return MARK + ", ".join(parts)


def _duration(seconds: float) -> str:
    for unit in ("s", "min", "h"):
        count = round(seconds / _UNITS_S[unit])
        if count < _MOST_OF_A_UNIT:
            return f"{count} {unit}"
    return f"{min(round(seconds / _UNITS_S['d']), 999_999_999)} d"


def _reason(text: str) -> str:
    return _NOT_IN_A_REASON.sub(" ", text).strip()[:WHY_LETTERS].strip()


def strategies_in(text: object) -> tuple[str, ...]:
    """`S2` and the like, of a text that should hold nothing else."""
    return tuple(text.split()) if isinstance(text, str) and _STRATEGIES.fullmatch(text) else ()


def component_name(node: str, bus: str = "", peer: str = "", kind: str = "") -> str:
    """`n017 0000:1b:00.0`, `n1 n2` of a link, `n4 cpu`, `storage`; empty where nothing is known."""
    told = [node, bus, peer, kind if kind in _HOST_KINDS else ""] if node else [kind if kind in _HOST_KINDS else ""]
    return " ".join(_NOT_IN_A_NAME.sub("_", word)[:64] for word in told if word)


def component_of(event: Mapping[str, object]) -> str:
    """What a verdict or fail-stop names, as the line has it: `n017 0000:1b:00.0`, `fail-stop n3`; empty if nothing."""
    raw = event.get("component")
    component = {key: value for key, value in raw.items() if isinstance(value, str)} if isinstance(raw, dict) else {}
    name = component_name(*(component.get(key, "") for key in ("node", "bus", "peer", "kind")))
    if event.get("kind") != "fail_stop":
        return name
    return " ".join(["fail-stop", *name.split()[: _WORDS_OF_A_COMPONENT - 1]])


def parse(text: str) -> Summary | None:
    """A line of ours, as it was printed; None for any other text."""
    if not text.startswith(MARK):
        return None
    head, parts = Summary(), _parts(text[len(MARK) :])
    counted = _COUNTED.fullmatch(parts[0])
    if counted:
        head = Summary(int(counted[1]), float(counted[2]) * _UNITS_S[counted[3]], float(counted[4]), watched=True)
        parts = parts[1:]
    elif parts[0] == _HEALTHY:
        head, parts = Summary(watched=True), parts[1:]
    elif not _UNMONITORED.fullmatch(parts[0]):
        return None
    return _rest(head, parts)


def _parts(text: str) -> list[str]:
    """Between commas, but the first two commas belong to the figures, and those in brackets to a reason."""
    before, found, reason = text.partition("unmonitored (")
    figures = _COUNTED.match(before)
    parts = [figures[0]] if figures else []
    parts += [part for part in before[figures.end() if figures else 0 :].split(", ") if part]
    return [*parts, found + reason] if found else parts or [""]


def _rest(head: Summary, parts: list[str]) -> Summary | None:
    strategies: tuple[str, ...] = ()
    components: list[str] = []
    why = ""
    for part in parts:
        unmonitored = _UNMONITORED.fullmatch(part)
        if unmonitored:
            why = unmonitored[1]
        elif _STRATEGIES.fullmatch(part):
            strategies = strategies_in(part)
        elif _COMPONENT.fullmatch(part):
            components.append(part)
        else:
            return None
    return head + Summary(strategies=strategies, components=tuple(components), unmonitored=why)


def ours_in(comment: str) -> Summary:
    """What our parts of a comment say together."""
    return total(found for found in map(parse, comment.split(JOINT)) if found is not None)


def with_ours(comment: str, summary: Summary) -> str:
    """The comment with this line as ours, at its end; others' parts are kept as they are."""
    parts = comment.split(JOINT) if comment else []
    return JOINT.join([*(part for part in parts if parse(part) is None), summary.text()])


def merge(comment: str, summary: Summary) -> str:
    """The comment with ours at its end: others' parts are kept as they are, what ours said before is counted in."""
    return with_ours(comment, ours_in(comment) + summary)


def is_ours(comment: str) -> bool:
    """Whether a comment is empty or nothing but a line of ours."""
    return not comment.strip() or parse(comment) is not None


def total(summaries: Iterable[Summary]) -> Summary:
    """All together."""
    return sum(summaries, Summary())


@dataclass
class Gathered:
    """Collects a step's summary from its events while they are written."""

    told: Summary = field(default_factory=Summary)  # strategies and components
    so_far: Summary = field(default_factory=Summary)
    episodes: dict[str, dict[str, object]] = field(default_factory=dict)

    @property
    def summary(self) -> Summary:
        """The step so far; after its last event all of it."""
        return self.told + self.so_far

    def take(self, event: dict[str, object]) -> bool:
        """One event; whether it can have changed the summary."""
        raw, kind, episode = event.get("data"), event["kind"], event.get("episode")
        data = raw if isinstance(raw, dict) else {}
        if kind == "action":
            self.told += Summary(strategies=strategies_in(data.get("strategy")))
        elif kind in ("verdict", "fail_stop"):
            self.told += Summary(components=tuple(filter(None, [component_of(event)])))
        elif kind == "end":
            self.so_far = of_end(data)
        elif kind in ("tracking", "suspect", "recovered", "unmonitored"):
            if isinstance(episode, str) and "slowdown" in data:
                self.episodes[episode] = data
            why = data.get("reason") if kind == "unmonitored" else None
            watched = self.so_far.watched or kind == "tracking"
            self.so_far = of_end({"episodes": list(self.episodes.values()), "unmonitored": why, "tracked": watched})
        else:
            return False
        return True


def of_end(data: dict[str, object]) -> Summary:
    """What an `end` event says."""
    rows = data["episodes"]
    assert isinstance(rows, list)
    left_out = data.get("episodes_left_out")
    return Summary(
        fail_slows=len(rows) + (left_out if isinstance(left_out, int) else 0),
        slow_s=sum(float(row["duration_s"] or 0.0) for row in rows),
        worst=max((float(row["slowdown"]) for row in rows), default=0.0),
        unmonitored=str(data.get("unmonitored") or ""),
        watched=bool(data.get("tracked")),
    )
