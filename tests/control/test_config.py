"""Options from five sources: the stronger wins, bad values are ignored with a warning or refused."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from greyhound import config


def test_later_source_wins(tmp_path):
    site = tmp_path / "greyhound.toml"
    site.write_text('threshold = 0.2\nwarmup = 20\nredis_server = "/opt/redis-server"\n')
    settings, warnings = config.from_environment({"GREYHOUND": "observe,warmup=30"}, site)
    assert warnings == []
    assert settings == config.Settings(
        mode="observe", threshold=0.2, warmup=30, redis_server="/opt/redis-server", record_dir=config.DEFAULT_RECORD_DIR
    )


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("watch", "'watch'"),
        ("on,treshold=0.1", "'treshold'"),
        ("on,threshold=2", "'2' is outside 0.02..1"),
        ("on,threshold=nan", "'nan'"),
        ("on,warmup=5.5", "'5.5'"),
        ("on,warmup", "'warmup' has no value"),
        ("on,record_dir=relative", "'relative' is not an absolute path"),
        ("on,redis_server=/bin/sh", "'redis_server'"),
    ],
)
def test_bad_text_is_refused_on_the_command_line_and_ignored_in_the_environment(text, part, tmp_path):
    with pytest.raises(config.OptionError) as error:
        config.parse_greyhound(text)
    assert part in str(error.value)
    settings, warnings = config.from_environment({"GREYHOUND": text}, tmp_path / "none.toml")
    assert settings == config.Settings()
    assert len(warnings) == 1
    assert part in warnings[0]
    assert "GREYHOUND" in warnings[0]


def test_a_bad_part_leaves_the_good_ones(tmp_path):
    settings, warnings = config.from_environment({"GREYHOUND": "observe,x=1,threshold=0.3"}, tmp_path / "none")
    assert (settings.mode, settings.threshold, len(warnings)) == ("observe", 0.3, 1)


def test_unreadable_site_file_is_a_warning(tmp_path):
    site = tmp_path / "greyhound.toml"
    site.write_text("threshold = [")
    settings, warnings = config.load_site(config.Settings(), site)
    assert settings == config.Settings(max_mode="off")
    assert str(site) in warnings[0]


@given(st.text(max_size=40))
def test_any_text_is_read_or_refused(text):
    try:
        values = config.parse_greyhound(text)
    except config.OptionError as error:
        assert str(error)
    else:
        assert values["mode"] in config.MODES


@pytest.mark.parametrize(
    ("mode", "ceiling", "expected"),
    [("on", "on", "on"), ("on", "observe", "observe"), ("observe", "on", "observe"), ("on", "off", "off")],
)
def test_mode_is_lowered_to_the_site_s_and_never_raised(mode, ceiling, expected):
    lowered, said = config.under_ceiling(config.Settings(mode=mode, max_mode=ceiling))
    assert lowered.mode == expected
    assert bool(said) is (mode != expected)
    assert said == "" or f"the site allows {expected}" in said


def test_ceilings_are_the_site_s_alone(tmp_path):
    site = tmp_path / "greyhound.toml"
    site.write_text('max_mode = "observe"\nmute_file = "/shared/mute"\nfreeze = "optin"\n')
    settings, warnings = config.from_environment({"GREYHOUND": "on,max_mode=on,mute_file=/mine"}, site)
    assert (settings.max_mode, settings.mute_file, settings.freeze) == ("observe", "/shared/mute", "optin")
    assert len(warnings) == 2
    with pytest.raises(config.OptionError):
        config.parse_greyhound("on,max_mode=on")


@pytest.mark.parametrize("text", ['max_mode = "observ"', "max_mode = true", 'max_mode = ""'])
def test_a_ceiling_that_cannot_be_read_is_the_lowest(tmp_path, text):
    site = tmp_path / "greyhound.toml"
    site.write_text(f"{text}\nwarmup = 20\n")
    settings, warnings = config.load_site(config.Settings(), site)
    assert (settings.max_mode, settings.warmup) == ("off", 20)
    assert len(warnings) == 1 and "taken as max_mode=off" in warnings[0]
