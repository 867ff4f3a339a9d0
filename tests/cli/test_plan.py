"""`greyhound plan microbatches`: the contract of its JSON, files, and clear refusals."""

import json

import pytest
from click.testing import CliRunner

from greyhound.cli.plan import command


def plan(*arguments):
    return CliRunner().invoke(command, ["microbatches", *arguments])


def test_json_has_the_four_fields():
    done = plan("--times", "3,1,1,1", "--total", "16", "--json")
    row = json.loads(done.output)
    assert row["microbatches"] == [1, 5, 5, 5] and row["makespan"] == 5.0 and row["even_makespan"] == 12.0
    assert row["solve_s"] >= 0


def test_numbers_may_come_from_a_file(tmp_path):
    (tmp_path / "times").write_text("1.0, 2.0\n1.0\r\n")
    done = plan("--times", f"@{tmp_path}/times", "--total", "10", "--json")
    assert json.loads(done.output)["microbatches"] == [4, 2, 4]


def test_upper_bounds_and_multiples_hold():
    done = plan("--times", "1,1", "--total", "16", "--multiple-of", "4", "--upper", "16,4", "--json")
    assert json.loads(done.output)["microbatches"] == [12, 4]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--times", "1,x", "--total", "4"), "number 1 is 'x'"),
        (("--times", "@/nowhere/file", "--total", "4"), "can't be read"),
        (("--times", "1,0", "--total", "4"), "time 1 is 0.0"),
        (("--times", "", "--total", "4"), "no times"),
        (("--times", "1,1,1", "--total", "2"), "each needs"),
        (("--times", "1,1", "--total", "4", "--upper", "a,b"), "bound 0"),
        (("--times", "1,1", "--total", "four"), "not a valid integer"),
    ],
)
def test_bad_input_is_a_usage_error_that_names_it(arguments, words):
    done = plan(*arguments)
    assert done.exit_code == 2 and words in done.output
