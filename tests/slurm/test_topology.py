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


def test_scontrol_comes_first_and_the_file_where_it_says_nothing(tmp_path):
    (tmp_path / "topology.conf").write_text(CONFIGURED.replace("leaf1", "rack1"))
    environment = {"SLURM_CONF": str(tmp_path / "slurm.conf")}
    assert read_leaves(Scontrol(SHOWN), environment) == EXPECTED
    assert read_leaves(Scontrol(""), environment)["n1"] == "rack1"
    assert read_leaves(Scontrol(None), environment)["n1"] == "rack1"
    assert read_leaves(Scontrol(None), {"SLURM_CONF": str(tmp_path / "elsewhere/slurm.conf")}) == {}
