"""Leaf switches from scontrol's answer and from topology.conf."""

from greyhound.slurm.client import SlurmError
from greyhound.slurm.topology import leaves, read_leaves

SHOWN = """SwitchName=leaf1 Level=0 LinkSpeed=1 Nodes=n[1-2]
SwitchName=leaf2 Level=0 LinkSpeed=1 Nodes=n[3-4],gpu07
SwitchName=spine Level=1 LinkSpeed=1 Nodes=n[1-4],gpu07 Switches=leaf[1-2]
"""
CONFIGURED = """# racks
SwitchName=spine Switches=leaf[1-2]   # no nodes
switchname=leaf1 NODES=n[1-2] LinkSpeed=100
SwitchName=leaf2 \\
   Nodes=n[3-4],gpu07
"""
EXPECTED = {"n1": "leaf1", "n2": "leaf1", "n3": "leaf2", "n4": "leaf2", "gpu07": "leaf2"}


class Scontrol:
    def __init__(self, answer):
        self.answer = answer

    def ask(self, program, *arguments):
        assert (program, arguments) == ("scontrol", ("show", "topology"))
        if self.answer is None:
            raise SlurmError("scontrol did not answer")
        return self.answer


def test_both_forms_say_the_same():
    assert leaves(SHOWN) == leaves("\n".join(reversed(SHOWN.splitlines()))) == leaves(CONFIGURED) == EXPECTED


def test_blocks_are_leaves():
    text = "BlockName=b1 BlockIndex=0 Nodes=n[1-2] BlockSize=2\nAggregatedBlock=b[1-2] Nodes=n[1-4]\n"
    assert leaves(text) == {"n1": "b1", "n2": "b1"}


def test_what_cannot_be_read_is_passed_over():
    assert (
        leaves("SwitchName=a Nodes=n[1-\nSwitchName=b Nodes=n[1-99999999]\nSwitchName= Nodes=n1\nNodes=n1\n\0\n") == {}
    )
    assert leaves("No topology information available\n") == {}


def test_the_file_is_enough_and_scontrol_is_asked_where_there_is_the_newer_one(tmp_path):
    environment = {"SLURM_CONF": str(tmp_path / "slurm.conf")}
    assert read_leaves(Refusing(SHOWN), environment) == {}  # no topology: nobody is asked
    (tmp_path / "topology.yaml").write_text("- topology: default\n")
    assert read_leaves(Scontrol(SHOWN), environment) == EXPECTED
    assert read_leaves(Scontrol(None), environment) == read_leaves(Scontrol(""), environment) == {}
    (tmp_path / "topology.conf").write_text(CONFIGURED)
    assert read_leaves(Refusing(SHOWN), environment) == EXPECTED


class Refusing(Scontrol):
    def ask(self, program, *arguments):
        raise AssertionError("slurmctld has other things to do")
