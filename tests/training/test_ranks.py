"""Where a rank finds its number and its peers."""

import pytest

from greyhound.sandbox import ranks

SLURM = {"SLURM_PROCID": "3", "SLURM_LOCALID": "1", "SLURM_NTASKS": "8", "SLURM_JOB_ID": "41", "SLURM_STEP_ID": "2"}


def test_torchrun_comes_before_slurm():
    given = {"RANK": "1", "LOCAL_RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "h", "MASTER_PORT": "29500"}
    assert ranks.from_environment({**SLURM, **given}) == ranks.RankEnvironment(1, 0, 2, "h", 29500)


def test_srun_in_the_sandbox_meets_on_loopback_at_a_port_of_the_step():
    me = ranks.from_environment({**SLURM, "SLURM_STEP_NODELIST": "n[1-4]", "GREYHOUND_SANDBOX": "x"})
    other_step = ranks.from_environment({**SLURM, "SLURM_STEP_ID": "3", "GREYHOUND_SANDBOX": "x"})
    restarted = ranks.from_environment({**SLURM, "SLURM_RESTART_COUNT": "1", "GREYHOUND_SANDBOX": "x"})
    assert (me.rank, me.local_rank, me.world_size, me.master_address) == (3, 1, 8, "127.0.0.1")
    assert len({me.master_port, other_step.master_port, restarted.master_port}) == 3


def test_srun_uses_the_first_node_that_resolves_else_the_launching_address():
    node = {"SLURM_STEP_NODELIST": "localhost,n[2-3]", "SLURM_LAUNCH_NODE_IPADDR": "127.0.0.9"}
    assert ranks.from_environment({**SLURM, **node}).master_address == "localhost"
    node["SLURM_STEP_NODELIST"] = "no-such-host-[07-09].invalid"
    assert ranks.from_environment({**SLURM, **node}).master_address == "127.0.0.9"


def test_what_the_user_gives_wins():
    me = ranks.from_environment({**SLURM, "MASTER_ADDR": "a", "MASTER_PORT": "7"})
    assert (me.master_address, me.master_port) == ("a", 7)


def test_alone():
    assert ranks.from_environment({}).world_size == 1


@pytest.mark.parametrize("missing", ["SLURM_NTASKS", "SLURM_LOCALID", "SLURM_JOB_ID"])
def test_a_missing_variable_is_named(missing):
    environment = {k: v for k, v in SLURM.items() if k != missing}
    with pytest.raises(ValueError, match=missing):
        ranks.from_environment({**environment, "GREYHOUND_SANDBOX": "x"})
