"""The rules of the trace-event format that Perfetto and chrome://tracing rely on, checked event by event.

After "Trace Event Format" (Duffy, Google): the object form, complete (X), instant (i) and metadata (M) events.
"""

import gzip
import json
import math
from collections import defaultdict

TEXT, NUMBER, WHOLE = (str,), (int, float), (int,)
COMMON = {"name": TEXT, "ph": TEXT, "pid": WHOLE, "tid": WHOLE}
BY_PHASE = {
    "X": COMMON | {"ts": NUMBER, "dur": NUMBER, "cat": TEXT, "args": (dict,)},
    "i": COMMON | {"ts": NUMBER, "s": TEXT},
    "M": COMMON | {"args": (dict,)},
}
METADATA = {
    "process_name": ("name", str),
    "process_labels": ("labels", str),
    "process_sort_index": ("sort_index", int),
    "thread_name": ("name", str),
    "thread_sort_index": ("sort_index", int),
}


def load(path):
    """The whole file; it must be strict JSON (no NaN)."""
    content = path.read_bytes()
    text = gzip.decompress(content) if content[:2] == b"\x1f\x8b" else content

    def refuse(name):
        raise AssertionError(f"{name} is no JSON")

    return json.loads(text, parse_constant=refuse)


def check(trace):
    """AssertionError names the rule that an event breaks; the events by phase."""
    assert isinstance(trace, dict) and isinstance(trace["traceEvents"], list)
    assert trace["displayTimeUnit"] in ("ms", "ns")
    assert isinstance(trace["otherData"], dict)
    found = defaultdict(list)
    for event in trace["traceEvents"]:
        check_event(event)
        found[event["ph"]].append(event)
    check_names(found)
    check_tracks(found["X"])
    return found


def check_event(event):
    assert isinstance(event, dict) and event.get("ph") in BY_PHASE, event
    for name, kinds in BY_PHASE[event["ph"]].items():
        assert isinstance(event.get(name), kinds) and not isinstance(event[name], bool), (name, event)
    assert event["pid"] >= 0 and event["tid"] >= 0, event
    for name in ("ts", "dur"):
        assert math.isfinite(event.get(name, 0)) and event.get(name, 0) >= 0, (name, event)
    if event["ph"] == "i":
        assert event["s"] in ("g", "p", "t"), event
    if event["ph"] == "M":
        name, kind = METADATA[event["name"]]
        assert isinstance(event["args"][name], kind), event


def check_names(found):
    """Each track with slices, and each process, has just one name."""
    names = [(e["name"], e["pid"], e["tid"]) for e in found["M"]]
    assert len(names) == len(set(names)), "named twice"
    tracks = {(e["pid"], e["tid"]) for e in found["X"]}
    assert tracks <= {(pid, tid) for kind, pid, tid in names if kind == "thread_name"}
    assert {pid for pid, _ in tracks} <= {pid for kind, pid, _ in names if kind == "process_name"}


def check_tracks(slices):
    """On a track slices are nested or apart, never crossing (in nanoseconds: floats of microseconds don't add up)."""
    by_track = defaultdict(list)
    for event in slices:
        begin = round(event["ts"] * 1000)
        by_track[event["pid"], event["tid"]].append((begin, begin + round(event["dur"] * 1000)))
    for track, spans in by_track.items():
        open_until = []
        for begin, end in sorted(spans, key=lambda span: (span[0], -span[1])):
            while open_until and open_until[-1] <= begin:
                open_until.pop()
            assert not open_until or end <= open_until[-1], (track, begin, end)
            open_until.append(end)


def tracks(found):
    """Slices by the name of their track, in order of time."""
    names = {(e["pid"], e["tid"]): e["args"]["name"] for e in found["M"] if e["name"] == "thread_name"}
    by_name = defaultdict(list)
    for event in sorted(found["X"], key=lambda event: event["ts"]):
        by_name[names[event["pid"], event["tid"]]].append(event)
    return by_name
