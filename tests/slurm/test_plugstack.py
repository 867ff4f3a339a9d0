"""Our line in plugstack.conf, with includes, comments and quoting."""

from pathlib import Path

import pytest

from greyhound.slurm.plugstack import read


def test_includes_are_followed_in_order(tmp_path):
    (tmp_path / "plugstack.conf.d").mkdir()
    (tmp_path / "plugstack.conf.d" / "b.conf").write_text("required /b/spank_greyhound.so\n")
    (tmp_path / "plugstack.conf.d" / "a.conf").write_text(
        "optional /x/pyxis.so\noptional /a/spank_greyhound.so prefix=/p\n"
    )
    conf = tmp_path / "plugstack.conf"
    conf.write_text("# optional /no/spank_greyhound.so\ninclude plugstack.conf.d/*.conf\n")
    first, second = read(conf)
    assert (first.kind, first.plugin, first.arguments, first.number) == (
        "optional",
        Path("/a/spank_greyhound.so"),
        {"prefix": "/p"},
        2,
    )
    assert (second.kind, second.file.name) == ("required", "b.conf")


def test_absolute_includes_and_a_loop_end(tmp_path):
    conf = tmp_path / "plugstack.conf"
    conf.write_text(f"include {conf}\noptional /a/spank_greyhound.so\n")
    assert 1 <= len(list(read(conf))) <= 20


def test_an_unreadable_include_costs_only_itself(tmp_path):
    (tmp_path / "d").mkdir()
    conf = tmp_path / "plugstack.conf"
    conf.write_text("include d\ninclude none*.conf\noptional /a/spank_greyhound.so 'default=on\n")
    assert len(list(read(conf))) == 1


def test_a_missing_file_is_told(tmp_path):
    with pytest.raises(OSError):
        list(read(tmp_path / "none"))
