"""`greyhound detect` on good, odd and hostile files."""

import gzip
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from greyhound.cli.main import main

STEP = [0.5] * 100 + [0.75] * 60 + [0.5] * 60


def rows_of(seconds, first=0):
    noise = np.random.default_rng(7).normal(1, 0.003, len(seconds))
    return [f"{first + at},{value * factor:.5f}" for at, (value, factor) in enumerate(zip(seconds, noise, strict=True))]


def text_of(rows, header="iteration,seconds"):
    return "\n".join([header, *rows]) + "\n"


@pytest.fixture
def good(tmp_path):
    path = tmp_path / "good.csv"
    path.write_text(text_of(rows_of(STEP)))
    return path


def detect(*arguments, code=0):
    done = CliRunner().invoke(main, ["detect", *map(str, arguments)])
    assert done.exit_code == code, (done.output, done.exception)
    return done


def answer(path, code=0):
    (line,) = detect("--json", path, code=code).stdout.splitlines()
    return json.loads(line)


def check_step(found):
    (episode,) = found["episodes"]
    assert abs(episode["onset"] - 100) <= 1
    assert 100 < episode["reported"] <= 112
    assert abs(episode["end"] - 160) <= 2
    assert episode["slowdown"] == pytest.approx(1.5, rel=0.03)
    assert found["healthy_s"] == pytest.approx(0.5, rel=0.03)


def test_json_is_one_object_a_line_with_the_agreed_keys(good):
    found = answer(good)
    assert list(found) == ["file", "n", "healthy_s", "episodes", "minor", "regimes"]
    assert (found["file"], found["n"]) == (str(good), 220)
    assert list(found["episodes"][0]) == ["onset", "reported", "end", "slowdown"]
    check_step(found)


def test_people_get_a_table(good):
    output = detect(good).stdout
    assert "fail-slow" in output and "220 iterations" in output and "1.5" in output


@pytest.mark.parametrize("method", ["full", "bocdv", "bocd", "window"])
def test_each_method_finds_the_step(good, method):
    found = json.loads(detect("--json", "--method", method, good).stdout)
    assert any(abs(row["onset"] - 100) <= 1 for row in found["episodes"])


def test_a_threshold_above_the_slowdown_finds_nothing(good):
    assert json.loads(detect("--json", "--threshold", "0.8", good).stdout)["episodes"] == []


@pytest.mark.parametrize("length", [104, 108, 130, 161, 163, 200])
def test_what_is_reported_by_an_iteration_needs_nothing_after_it(good, tmp_path, length):
    rows = rows_of(STEP)
    cut = tmp_path / "cut.csv"
    cut.write_text(text_of(rows[:length]))
    whole = [(row["onset"], row["reported"]) for row in answer(good)["episodes"] if row["reported"] < length]
    assert [(row["onset"], row["reported"]) for row in answer(cut)["episodes"]] == whole


ACCEPTED = {
    "windows line ends": lambda rows: text_of(rows).replace("\n", "\r\n").encode(),
    "old Macintosh line ends": lambda rows: text_of(rows).replace("\n", "\r").encode(),
    "byte order mark": lambda rows: b"\xef\xbb\xbf" + text_of(rows).encode(),
    "no header": lambda rows: "\n".join(rows).encode(),
    "no last line end": lambda rows: text_of(rows).rstrip().encode(),
    "empty lines": lambda rows: text_of(rows).replace("\n", "\n\n").encode(),
    "comments": lambda rows: ("# a run\n" + text_of(rows)).encode(),
    "other columns": lambda rows: text_of([f"x,{row},y" for row in rows], "rank,Iteration,SECONDS,loss").encode(),
    "columns swapped": lambda rows: text_of(
        [",".join(reversed(row.split(","))) for row in rows], "seconds,iteration"
    ).encode(),
    "blanks and quotes": lambda rows: text_of([row.replace(",", ' , "') + '"' for row in rows]).encode(),
    "semicolons": lambda rows: text_of(rows).replace(",", ";").encode(),
    "tabs": lambda rows: text_of(rows).replace(",", "\t").encode(),
    "gzip": lambda rows: gzip.compress(text_of(rows).encode()),
}


@pytest.mark.parametrize("kind", ACCEPTED)
def test_accepted_without_a_word(tmp_path, kind):
    path = tmp_path / "series"
    path.write_bytes(ACCEPTED[kind](rows_of(STEP)))
    done = detect("--json", path)
    check_step(json.loads(done.stdout))
    assert done.stderr == ""


BAD_ROWS = ["nan", "", "-0.5", "0", "inf", "-inf", "abc", "0,5", "1e999", "1_0", "1e-300", "٣"]


@pytest.mark.parametrize("text", BAD_ROWS)
def test_bad_rows_are_skipped_and_named(tmp_path, text):
    rows = rows_of(STEP)
    rows.insert(50, f"1000000,{text}")
    path = tmp_path / "bad.csv"
    path.write_text(text_of(rows))
    done = detect("--json", path)
    found = json.loads(done.stdout)
    check_step(found)
    assert (found["n"], found["skipped"]) == (220, 1)
    assert "1 row skipped (line 52: " in done.stderr and str(path) in done.stderr


def test_many_bad_rows_are_counted_in_one_warning(tmp_path):
    path = tmp_path / "bad.csv"
    path.write_text(text_of(row for good in rows_of(STEP) for row in (good, "oops")))
    done = detect("--json", path)
    check_step(json.loads(done.stdout))
    assert done.stderr.count("\n") == 1
    assert "220 rows skipped (line 3: 1 columns, expected 2; line 5: " in done.stderr


BAD_ITERATIONS = {
    "1.5": "iteration 1.5 is not a whole number from 0",
    "-1": "iteration -1 is not a whole number from 0",
    "nan": "iteration nan is not a whole number from 0",
    "": "no iteration",
    "x": "'x' is not a number",
    "1e40": "iteration 1e40 is too large; write digits only, 9223372036854775807 at most",
    "1e18": "iteration 1e18 is too large; write digits only, 9223372036854775807 at most",
    "9223372036854775808": "iteration 9223372036854775808 is too large",
}


@pytest.mark.parametrize("bad", BAD_ITERATIONS)
def test_an_iteration_is_a_whole_number(tmp_path, bad):
    rows = rows_of(STEP)
    rows.insert(50, f"{bad},0.5")
    path = tmp_path / "bad.csv"
    path.write_text(text_of(rows))
    found = answer(path)
    check_step(found)
    assert found["skipped"] == 1
    assert f"1 row skipped (line 52: {BAD_ITERATIONS[bad]}" in found["warnings"][0]


@pytest.mark.parametrize("method", ["full", "bocdv", "bocd", "window"])
def test_iterations_may_be_nanoseconds_since_1970(tmp_path, method):
    first = 1_764_590_400_000_000_000
    path = tmp_path / "large.csv"
    path.write_text(text_of(rows_of(STEP, first)))
    (line,) = detect("--json", "--method", method, path).stdout.splitlines()
    found = json.loads(line)
    assert found["n"] == len(STEP) and "skipped" not in found
    episode = found["episodes"][0]
    assert isinstance(episode["onset"], int) and first + 90 <= episode["onset"] <= first + 125
    if method == "full":
        assert abs(episode["onset"] - first - 100) <= 1 and abs(episode["end"] - first - 160) <= 2


def test_repeated_and_misplaced_iterations_are_skipped(tmp_path):
    rows = rows_of(STEP)
    rows[60:60] = [rows[59], rows[3]]
    path = tmp_path / "unsorted.csv"
    path.write_text(text_of(rows))
    done = detect("--json", path)
    check_step(json.loads(done.stdout))
    assert "2 rows skipped (line 62: iteration 59 is not above 59; line 63: iteration 3 is not above 59)" in done.stderr


def test_a_training_that_begins_anew_is_two_runs_in_one_file(tmp_path):
    path = tmp_path / "twice.csv"
    path.write_text(text_of(rows_of(STEP) + rows_of(STEP)))
    done = detect("--json", path)
    found = json.loads(done.stdout)
    assert (found["n"], len(found["episodes"])) == (440, 2)
    assert "line 222: the iterations begin again at 0" in done.stderr


REFUSED = {
    "binary": (bytes(range(256)) * 40, "line 1"),
    "zeros": (bytes(20000), "line 1: binary"),
    "UTF-16": ("iteration,seconds\n1,2\n".encode("utf-16"), "UTF-16"),
    "one long line": (b"1," * 100_000, "line 1"),
    "wrong names": (b"step,time\n1,0.5\n", "line 1: 'step,time' doesn't name the columns"),
    "three columns without names": (b"1,0,5\n2,0,5\n", "line 1"),
    "zip of something else": (b"PK\x03\x04" + bytes(200), "not a recorded dump"),
    "a wide first line": (b"iteration," + b"x" * 5000, "line 1: longer than"),
}


@pytest.mark.parametrize("kind", REFUSED)
def test_refused_with_file_line_and_mend_while_the_others_are_done(tmp_path, good, kind):
    content, expected = REFUSED[kind]
    path = tmp_path / "refused"
    path.write_bytes(content)
    first, second = (json.loads(line) for line in detect("--json", path, good, code=1).stdout.splitlines())
    assert first["file"] == str(path) and expected in first["error"]
    check_step(second)
    assert expected in detect(path, code=1).stderr


EMPTY = {
    "nothing": b"",
    "header only": b"iteration,seconds\n",
    "blank": b"\n \n\n",
    "bad rows": b"iteration,seconds\n1,x\n",
}


@pytest.mark.parametrize("kind", EMPTY)
def test_no_data_is_an_answer_of_its_own(tmp_path, good, kind):
    path = tmp_path / "empty.csv"
    path.write_bytes(EMPTY[kind])
    expected = {"file": str(path), "error": "no data"}
    if kind == "bad rows":
        expected |= {"skipped": 1, "warnings": ["1 row skipped (line 2: 'x' is not a number)"]}
    assert answer(path, code=3) == expected
    first, second = (json.loads(line) for line in detect("--json", path, good).stdout.splitlines())
    assert first == expected
    check_step(second)


def test_missing_files_and_folders_are_told_and_the_others_done(tmp_path, good):
    done = detect("--json", tmp_path / "absent.csv", tmp_path, good, code=1)
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    assert rows[0]["error"] == "No such file or directory"
    assert "a directory" in rows[1]["error"] and "*.csv" in rows[1]["error"]
    check_step(rows[2])
    detect(tmp_path / "absent.csv", code=1)
    detect("x" * 5000, code=1)


def test_a_file_that_is_missing_is_told_from_files_without_data(tmp_path):
    empty = tmp_path / "empty.csv"
    empty.write_bytes(EMPTY["header only"])
    detect(empty, empty, code=3)
    detect(empty, tmp_path / "absent.csv", code=1)


def test_gzip_that_is_cut_off_gives_what_can_be_read(tmp_path):
    packed = gzip.compress(text_of(rows_of(STEP * 40)).encode())
    path = tmp_path / "cut.csv.gz"
    path.write_bytes(packed[: len(packed) // 2])
    done = detect("--json", path)
    found = json.loads(done.stdout)
    assert 0 < found["n"] < 220 * 40
    assert "cut off or damaged after line" in done.stderr
    assert "cut off or damaged after line" in found["warnings"][-1]  # for whoever reads standard output alone


def test_gzip_that_is_damaged_is_no_traceback(tmp_path):
    packed = bytearray(gzip.compress(text_of(rows_of(STEP * 40)).encode()))
    packed[40:60] = b"\xff" * 20
    path = tmp_path / "damaged.csv.gz"
    path.write_bytes(packed)
    done = CliRunner().invoke(main, ["detect", "--json", str(path)])
    assert done.exit_code in (0, 3) and "damaged" in done.stderr


def test_standard_input_and_odd_names(tmp_path, good):
    done = subprocess.run(
        [sys.executable, "-m", "greyhound", "detect", "--json", "-", "-"],
        input=good.read_bytes(), capture_output=True, timeout=60,
    )  # fmt: skip
    first, second = (json.loads(line) for line in done.stdout.splitlines())
    check_step(first)
    assert second == {"file": "-", "error": "no data"}
    odd = tmp_path / "a [bold]\n$x.csv"
    odd.write_bytes(good.read_bytes())
    assert "[bold]" in detect(odd).stdout
    check_step(answer(odd))


def test_bad_options_are_refused_with_what_is_allowed(good):
    assert "0.02<=x<=1.0" in detect("--threshold", "3", good, code=2).stderr
    assert "not a number" in detect("--threshold", "nan", good, code=2).stderr
    assert "bocdv" in detect("--method", "magic", good, code=2).stderr
    detect(code=2)


def test_the_plot_is_an_image_with_a_panel_a_file(good, tmp_path):
    pytest.importorskip("matplotlib")
    image = tmp_path / "out.png"
    detect("--json", "--plot", image, good, good)
    assert image.read_bytes().startswith(b"\x89PNG")
    assert "no image" in detect("--plot", tmp_path / "out.txt", good, code=1).stderr
    assert "no folder" in detect("--plot", tmp_path / "absent" / "out.png", good, code=1).stderr
    assert "at most 24" in detect("--plot", image, *[good] * 25, code=2).stderr


def test_without_matplotlib_the_plot_names_the_extra(good, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    monkeypatch.setitem(sys.modules, "matplotlib.backends.backend_agg", None)
    assert "pip install 'greyhound[plot]'" in detect("--plot", tmp_path / "o.png", good, code=1).stderr


def test_a_bar_only_on_a_terminal(tmp_path):
    path = tmp_path / "long.csv"
    path.write_text(text_of(rows_of([0.5] * 60_000)))
    assert path.stat().st_size > 500_000
    script = Path(tmp_path / "run.sh")
    script.write_text(f"exec {sys.executable} -m greyhound detect --json {path} > {tmp_path}/out\n")
    shown = subprocess.run(
        ["script", "-qec", f"sh {script}", "/dev/null"], capture_output=True, timeout=120, stdin=subprocess.DEVNULL
    ).stdout
    assert b"%" in shown
    assert json.loads((tmp_path / "out").read_text())["n"] == 60_000
    assert detect("--json", path).stderr == ""
