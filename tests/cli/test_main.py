"""The entry point where the light installation lacks the control side's libraries."""

import subprocess
import sys

HIDE = "import sys; sys.modules['rich'] = None; sys.argv = ['greyhound', *sys.argv[1:]]; "
RUN = HIDE + "from greyhound.cli.main import main; main()"


def greyhound(*arguments):
    return subprocess.run([sys.executable, "-c", RUN, *arguments], capture_output=True, text=True, timeout=60)


def test_help_names_the_mend_and_still_works():
    done = greyhound("--help")
    assert done.returncode == 0, done.stderr
    assert "status" in done.stdout
    assert "greyhound[control]" in done.stdout.replace("\n", " ") or "needs the Python package" in done.stdout


def test_a_command_that_lacks_a_library_says_which():
    done = greyhound("status", "1", "--json")
    assert done.returncode == 1
    assert "rich" in done.stderr and "pip install 'greyhound[control]'" in done.stderr
    assert "Traceback" not in done.stderr
