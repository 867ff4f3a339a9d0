import itertools
import os

import pytest

from greyhound.sandbox import page, page_layout
from greyhound.sandbox.errors import SandboxError
from greyhound.sandbox.page import Link, StandinPage, find_page
from greyhound.sandbox.units import UnitError, parse_rate_bytes_per_s, parse_seconds


@pytest.fixture
def fresh(tmp_path):
    with StandinPage.create(tmp_path / "p.page", ["n1:0", "n1:1", "n2:0"]) as one:
        yield one


def test_a_new_page_is_healthy(fresh):
    assert fresh.gpus() == {"n1:0": 1.0, "n1:1": 1.0, "n2:0": 1.0}
    assert fresh.links() == []
    assert oct(fresh.path.stat().st_mode)[-3:] == "644"


def test_bytes_where_the_header_says(fresh):
    """Offsets written out, so that a change of the layout on one side alone is seen."""
    fresh.set_speed("n1:1", 0.5)
    fresh.set_link("n1:0", "n2:0", 5e7, 1e-3, one_way=True)
    content = fresh.path.read_bytes()
    assert content[:8] == b"GHPAGE01" and content[12] == 3 and content[16] == 2
    assert content[4096:4101] == b"n1:0\0"
    doubles = memoryview(content).cast("d")
    assert doubles[(4096 + 64 + 48) // 8] == 0.5
    assert list(doubles[(8192 + 2 * 16) // 8 :][:2]) == [5e7, 1e-3]
    assert set(doubles[(8192 + 3 * 16) // 8 :]) == {0.0}


def test_changes_are_seen_by_another_mapping_and_healed(fresh):
    with StandinPage.open(fresh.path) as other:
        fresh.set_speed("n2:0", 0.25)
        fresh.set_link("n1:0", "n2:0", 100.0)
        assert other.gpus()["n2:0"] == 0.25
        assert other.links() == [Link("n1:0", "n2:0", 100.0, 0.0), Link("n2:0", "n1:0", 100.0, 0.0)]
        other.heal()
        assert (fresh.gpus()["n2:0"], fresh.links()) == (1.0, [])


def test_bad_requests_change_nothing(fresh):
    before = fresh.path.read_bytes()
    for attempt in (
        lambda: fresh.set_speed("n9:0", 1.0),
        lambda: fresh.set_speed("n1:0", 0.0),
        lambda: fresh.set_speed("n1:0", float("nan")),
        lambda: fresh.set_link("n1:0", "n1:0", 1.0),
        lambda: fresh.set_link("n1:0", "n1:1", -1.0),
        lambda: fresh.set_link("n1:0", "n1:1", 1.0, float("inf")),
    ):
        with pytest.raises(SandboxError):
            attempt()
    assert fresh.path.read_bytes() == before
    with pytest.raises(SandboxError, match=r"'n9:0'.*n1:0, n1:1, n2:0"):
        fresh.set_speed("n9:0", 1.0)


@pytest.mark.parametrize(
    "names", [[], ["a:0", "a:0"], ["a"], [":0"], ["a:x"], ["a" * 46 + ":0"], [f"a:{i}" for i in range(65)]]
)
def test_bad_names(tmp_path, names):
    with pytest.raises(SandboxError):
        StandinPage.create(tmp_path / "p", names)
    assert not (tmp_path / "p").exists()


def test_foreign_and_truncated_files(tmp_path, fresh):
    content = fresh.path.read_bytes()
    for spoilt in (b"", content[:-1], b"X" + content[1:], content[:8] + b"\x09" + content[9:]):
        (tmp_path / "x").write_bytes(spoilt)
        with pytest.raises(SandboxError, match="no stand-in page"):
            StandinPage.open(tmp_path / "x")
    with pytest.raises(SandboxError, match="No such file"):
        StandinPage.open(tmp_path / "missing")
    with pytest.raises(SandboxError, match="File exists"):
        StandinPage.create(fresh.path, ["n1:0"])


def test_a_header_of_another_release():
    with pytest.raises(SandboxError, match="lacks GHS_VERSION"):
        page_layout.parse("#define GHS_MAGIC 0x1\n", "h")


def test_find_page(fresh, tmp_path, monkeypatch):
    monkeypatch.setattr(page, "SHM", tmp_path)
    monkeypatch.setattr(page, "existing", list)
    monkeypatch.delenv(page.VARIABLE, raising=False)
    with pytest.raises(SandboxError, match="sandbox up"):
        find_page()
    launched = tmp_path / f"greyhound-standin-{os.getuid()}-77.page"
    launched.touch()
    assert find_page() == launched
    launched.with_name(f"greyhound-standin-{os.getuid()}-78.page").touch()
    with pytest.raises(SandboxError, match="several"):
        find_page()
    monkeypatch.setenv(page.VARIABLE, str(fresh.path))
    assert find_page() == fresh.path
    assert find_page(launched) == launched
    with pytest.raises(SandboxError, match="does not exist"):
        find_page(tmp_path / "gone")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("50MB/s", 50e6),
        ("400Gb/s", 50e9),
        ("1GiB/s", 2**30),
        ("8kb/s", 1000),
        ("1.5 GB/s", 1.5e9),
        ("unlimited", 0),
        ("8bps", 1),
    ],
)
def test_rates(text, expected):
    assert parse_rate_bytes_per_s(text) == expected


@pytest.mark.parametrize(
    "text", ["", "50", "50MB", "MB/s", "-1MB/s", "0MB/s", "50mB/s", "nanMB/s", "1e400GB/s", "5 M B/s"]
)
def test_bad_rates_are_named(text):
    with pytest.raises(UnitError, match="bandwidth") as caught:
        parse_rate_bytes_per_s(text)
    assert repr(text) in str(caught.value)


@pytest.mark.parametrize(
    ("text", "expected"), [("5ms", 5e-3), ("20us", 20e-6), ("20µs", 20e-6), ("0", 0), ("2m", 120), (".5s", 0.5)]
)
def test_times(text, expected):
    assert parse_seconds(text) == pytest.approx(expected)


def test_a_bare_number_is_seconds_only_where_asked():
    assert parse_seconds("60", unit_needed=False) == 60
    for text in itertools.chain(["60"], ["", "ms", "-1s", "5 minutes", "1d"]):
        with pytest.raises(UnitError, match="time"):
            parse_seconds(text)
