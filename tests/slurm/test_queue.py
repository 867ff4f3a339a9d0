"""The queue of a real slurmctld: `squeue --json` and its columns say the same."""

import re

import pytest

from greyhound.sandbox.cluster import Sandbox
from greyhound.slurm import queue_json
from greyhound.slurm.client import SlurmError, parse_queue

COLUMNS = "\x1f".join(("%i", "%T", "%u", "%N", "%j"))


@pytest.mark.cluster
def test_json_and_columns_say_the_same(sandbox: Sandbox) -> None:
    kinds = (["--array=2-9%3"], ["--job-name=a|b<script>"], ["-n1", ":", "-n1"])
    sent = []
    for options in kinds:
        done = sandbox.run(["sbatch", "--parsable", "--hold", "--output=/dev/null", *options, "--wrap=true"])
        assert done.returncode == 0, done.stderr
        sent.append(done.stdout.strip())
    try:
        answer = sandbox.run(["squeue", "--json"])
        assert answer.returncode == 0, answer.stderr
        jobs = [job for job in queue_json.parse(answer.stdout) if re.split(r"[_+]", str(job.job))[0] in sent]
        columns = parse_queue(sandbox.run(["squeue", "-h", "-j", ",".join(sent), "-o", COLUMNS]).stdout)
        assert sorted(jobs, key=str) == sorted(columns, key=str) and len(jobs) == 4
        with pytest.raises(SlurmError, match="can't be read"):
            queue_json.parse(answer.stdout[:-200])
    finally:
        sandbox.run(["scancel", *sent])
