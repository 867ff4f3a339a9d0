"""Counters of the node's RDMA ports (InfiniBand, RoCE, EFA), from /sys/class/infiniband.

Names of counters differ between drivers; what none of the names leads to is n/a. They count for the whole node: other
jobs that share it are in them.
"""

import math
from collections.abc import Mapping
from pathlib import Path

from greyhound.control.evidence_files import MOST_NAMES, Target, listed, number, read_text
from greyhound.localize.cause_evidence import Place, Row, row

COUNTERS: Mapping[str, tuple[str, ...]] = {
    "cnp_sent": ("hw_counters/np_cnp_sent", "hw_counters/cnp_sent"),
    "cnp_handled": ("hw_counters/rp_cnp_handled", "hw_counters/cnp_handled"),
    "ecn_marked": ("hw_counters/np_ecn_marked_roce_packets", "hw_counters/rx_ecn_marked_pkts"),
    "out_of_sequence": ("hw_counters/out_of_sequence", "hw_counters/out_of_sequence_reqs"),
    "sequence_errors": ("hw_counters/packet_seq_err", "hw_counters/seq_err_naks_rcvd"),
    "timeouts": ("hw_counters/local_ack_timeout_err", "hw_counters/to_retransmits"),
    "retransmits": ("hw_counters/roce_adp_retrans", "hw_counters/retrans_pkts"),
    "no_buffer": ("hw_counters/rnr_nak_retry_err", "hw_counters/out_of_buffer"),
    "symbol_errors": ("counters/symbol_error",),
    "link_downs": ("counters/link_downed",),
    "xmit_wait": ("counters/port_xmit_wait",),
    "sent_bytes": ("counters/port_xmit_data", "hw_counters/tx_bytes"),
    "received_bytes": ("counters/port_rcv_data", "hw_counters/rx_bytes"),
}
_WORDS = ("counters/port_xmit_data", "counters/port_rcv_data")  # in units of four bytes


class RdmaSource:
    """All ports of this node below `root`."""

    name = "rdma"

    def __init__(self, root: Path = Path("/")) -> None:
        self._devices = root / "sys/class/infiniband"

    def read(self, targets: tuple[Target, ...]) -> tuple[Mapping[Place, Row], Mapping[str, str]]:
        """A row a port, `mlx5_0/1`."""
        rows: dict[Place, Row] = {}
        for device in listed(self._devices):
            for port in listed(self._devices / device / "ports"):
                if len(rows) < MOST_NAMES:
                    folder = self._devices / device / "ports" / port
                    rows["nic", f"{device}/{port}"] = row("nic", _port(folder))
        return rows, ({} if rows else {self.name: f"no port in {self._devices}"})


def _port(folder: Path) -> dict[str, float]:
    figures = {field: _first(folder, names) for field, names in COUNTERS.items()}
    figures["gbit_s"] = number(read_text(folder / "rate"))
    state = read_text(folder / "state").strip()  # "4: ACTIVE"
    figures["active"] = float(state.startswith("4:")) if state else math.nan
    return figures


def _first(folder: Path, names: tuple[str, ...]) -> float:
    for name in names:
        value = number(read_text(folder / name))
        if not math.isnan(value):
            return value * 4 if name in _WORDS else value
    return math.nan
