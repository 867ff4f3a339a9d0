"""The verdict of a self-test: from made-up results, so that every way to fail is seen to fail."""

import copy
import json

import numpy as np
import pytest

from greyhound.selftest import certificate, verdict
from greyhound.selftest.calls import Expected, compare
from greyhound.trace import layout
from greyhound.trace.records import RECORD_DTYPE


def result(run, rank, on_s=1.0):
    found = {"run": run, "rank": rank, "world_size": 2, "on_gpu": True}
    for kind in ("ddp", "fsdp2"):
        found[kind] = {"ok": True, "losses": ["0x1p-3", "0x1p-4"], "calls_an_iteration": 3}
    found["calls"] = {"ok": True, "calls": 36, "wrong_results": [], "differing_records": []}
    found["graph"] = {"ok": True, "captured": 1, "launches": 10}
    off_s = [1e-5, 1.02e-5, 0.99e-5]
    times = {"off_s": off_s, "on_s": [on_s * time for time in off_s]}
    found["cost"] = {"iteration": times, "call": copy.deepcopy(times)}
    return found


def runs(**changes):
    return [result("on", rank, **changes) for rank in (0, 1)], [result("off", rank) for rank in (0, 1)]


def failed(on, off):
    return [line.name for line in verdict.judge(on, off) if not line.passed]


def test_good_results_pass():
    assert failed(*runs()) == []


def break_losses(on, off):
    on[1]["fsdp2"]["losses"][1] = "0x1.1p-4"


def break_records(on, off):
    on[0]["calls"]["differing_records"].append("all_reduce of 1: 1 calls made, 2 recorded")


def break_result(on, off):
    on[1]["calls"]["wrong_results"].append("broadcast of 1")


def break_result_without(on, off):
    off[1]["calls"]["wrong_results"].append("broadcast of 1")


def skip_graph_on_one(on, off):
    on[1]["graph"] = {"ok": True, "skipped": "no GPU"}


def break_regularity(on, off):
    on[0]["ddp"]["ok"] = False


def break_graph(on, off):
    on[1]["graph"]["ok"] = False


def break_launches(on, off):
    on[0]["graph"]["launches"] = 0


@pytest.mark.parametrize(
    ("spoil", "name"),
    [
        (break_losses, "fsdp2: losses identical with and without"),
        (break_regularity, "ddp: losses identical with and without"),
        (break_records, "records equal the calls made"),
        (break_result, "records equal the calls made"),
        (break_graph, "graph capture untouched"),
        (skip_graph_on_one, "graph capture untouched"),
        (break_result_without, "results right without the hook"),
        (break_launches, "graph capture untouched"),
    ],
)
def test_each_fault_fails_its_own_check(spoil, name):
    on, off = runs()
    spoil(on, off)
    assert failed(on, off) == [name]


def test_a_missing_rank_fails():
    on, off = runs()
    assert failed(on[:1], off) == ["all ranks ran"]
    assert failed([], []) == ["all ranks ran"]


def test_a_clear_cost_fails_and_noise_does_not():
    assert failed(*runs(on_s=1.03)) == ["cost in iteration time"]
    on, off = runs()
    on[0]["cost"]["iteration"]["on_s"] = [1.2e-5, 0.9e-5, 1.1e-5]
    assert failed(on, off) == []


def test_records_are_compared_in_order_and_number():
    records = np.zeros(2, dtype=RECORD_DTYPE)
    records["op"], records["bytes"] = layout.GH_OP_ALL_REDUCE, (4, 8)
    made = [Expected(layout.GH_OP_ALL_REDUCE, 4), Expected(layout.GH_OP_ALL_REDUCE, 8)]
    assert compare(made, records) == ""
    assert compare(made[::-1], records).startswith("call 0: made all_reduce of 8 bytes, recorded all_reduce of 4")
    assert compare(made[:1], records) == "1 calls made, 2 recorded"


def test_a_certificate_is_found_for_its_own_platform_alone(tmp_path):
    here = certificate.Platform("550.54", "12.4", "22105", "2.6.0+cu124", "abc")
    path = certificate.write(tmp_path / "new", here, {"passed": True})
    assert certificate.find(path.parent, here)["passed"]
    other = certificate.Platform("550.54", "12.4", "22203", "2.6.0+cu124", "abc")
    assert certificate.find(path.parent, other) is None
    # Renamed to another platform's, it is still about its own.
    path.rename(path.with_name(other.file_name))
    assert certificate.find(path.parent, other) is None


def test_broken_result_files_are_no_results(tmp_path):
    (tmp_path / "on.0.json").write_text("{")
    (tmp_path / "on.1.json").write_text(json.dumps({"rank": 1}))
    assert [found["rank"] for found in verdict.load(tmp_path, "on")] == [1]


def test_a_folder_that_others_can_write_certifies_nothing(tmp_path):
    here = certificate.Platform("550.54", "12.4", "22105", "2.6.0+cu124", "abc")
    folder = certificate.folder_below(tmp_path)
    certificate.write(folder, here, {"passed": True})
    folder.chmod(0o777)
    assert certificate.find(folder, here) is None
    with pytest.raises(PermissionError, match="written by others"):
        certificate.write(folder, here, {"passed": True})
    folder.rename(tmp_path / "elsewhere")
    folder.symlink_to(tmp_path / "elsewhere")
    assert certificate.find(folder, here) is None
