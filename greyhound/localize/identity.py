"""What a repair ticket needs to name a component: node, GPU, NIC and port, leaf switch. Pure parsers and plain data."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

NOT_KNOWN = "n/a"
NICS_SHOWN = 4  # virtual functions of one adapter are all equally near
_BUS = re.compile(r"(?:([0-9a-f]{1,8}):)?([0-9a-f]{1,2}):([0-9a-f]{1,2})\.([0-7])", re.ASCII | re.IGNORECASE)
_PCI_PART = re.compile(r"pci[0-9a-f]{4,8}:[0-9a-f]{2}|[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]", re.ASCII)


@dataclass(frozen=True)
class Gpu:
    """What NVML says of a GPU; `instances` are the UUIDs of its MIG instances."""

    name: str = NOT_KNOWN
    uuid: str = NOT_KNOWN
    serial: str = NOT_KNOWN
    instances: tuple[str, ...] = ()


@dataclass(frozen=True)
class Port:
    """A port of a network adapter: `mlx5_0/1`, the PCI address of the adapter, its GUID or firmware where known."""

    name: str
    path: str
    guid: str = NOT_KNOWN


@dataclass(frozen=True)
class Identity:
    """A GPU as a ticket names it; each text is "n/a" where it isn't known."""

    node: str
    bus: str
    gpu: str = NOT_KNOWN
    uuid: str = NOT_KNOWN
    serial: str = NOT_KNOWN
    nic: str = NOT_KNOWN
    switch: str = NOT_KNOWN
    instances: tuple[str, ...] = ()

    def text(self) -> str:
        """One line for people."""
        mig = f", MIG {', '.join(self.instances)}" if self.instances else ""
        return (
            f"{self.node}: GPU {self.bus or NOT_KNOWN} ({self.gpu}), serial {self.serial}, {self.uuid}{mig}, "
            f"NIC {self.nic}, leaf switch {self.switch}"
        )


def normal_bus(text: str) -> str:
    """A PCI address as sysfs writes it: `00000000:65:00.0` of NVML and `65:00.0` are `0000:65:00.0`; else as it is."""
    match = _BUS.fullmatch(text.strip())
    if match is None:
        return text
    domain, bus, device, function = match.groups()
    return f"{int(domain or '0', 16):04x}:{int(bus, 16):02x}:{int(device, 16):02x}.{function}"


def identify(
    node: str, bus: str, gpus: Mapping[str, Gpu], paths: Mapping[str, str], ports: Iterable[Port], switch: str = ""
) -> Identity:
    """The identity of the GPU at `bus`.

    `gpus` are NVML's by normal bus, `paths` the sysfs device paths of GPUs by normal bus (`pci_path`); what isn't in
    them is n/a.
    """
    bus = normal_bus(bus)
    gpu = gpus.get(bus, Gpu())
    near = nearest(paths.get(bus, ""), ports)
    more = f" and {len(near) - NICS_SHOWN} more" if len(near) > NICS_SHOWN else ""
    nic = ", ".join(near[:NICS_SHOWN]) + more if near else NOT_KNOWN
    return Identity(node, bus, gpu.name, gpu.uuid, gpu.serial, nic, switch or NOT_KNOWN, gpu.instances)


def pci_chain(path: str) -> tuple[str, ...]:
    """The PCI part of a sysfs device path: root complex, bridges, device.

    `/sys/devices/pci0000:60/0000:60:01.0/0000:61:00.0` -> ("pci0000:60", "0000:60:01.0", "0000:61:00.0")
    """
    return tuple(part for part in path.lower().split("/") if _PCI_PART.fullmatch(part))


def common_bridges(one: str, other: str) -> int:
    """How many parts of their PCI paths two devices share: 0 for different root complexes, more the nearer they are."""
    shared = 0
    for left, right in zip(pci_chain(one), pci_chain(other), strict=False):
        if left != right:
            break
        shared += 1
    return shared


def nearest(gpu_path: str, ports: Iterable[Port]) -> tuple[str, ...]:
    """Names of the ports with most bridges in common with a GPU; several if equally near, none if none is near."""
    distances = [(common_bridges(gpu_path, port.path), port.name) for port in ports]
    most = max((shared for shared, _ in distances), default=0)
    return tuple(sorted(name for shared, name in distances if shared == most)) if most else ()
