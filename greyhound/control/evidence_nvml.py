"""Evidence of GPUs, from NVML (package nvidia-ml-py, optional). NVML makes no CUDA context; its calls may block.

Under MIG the parent has clocks, temperature, power and errors; its instances, named
`BUS/GPU_INSTANCE/COMPUTE_INSTANCE`, have what the driver gives of them. What it refuses of either is n/a.
"""

import importlib
import itertools
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from greyhound.control.evidence_files import MOST_NAMES, Target
from greyhound.localize.cause_evidence import FIELDS, REASONS, Place, Row, row
from greyhound.localize.identity import NOT_KNOWN, Gpu, normal_bus

MODULE = "pynvml"
SLOW_ROUNDS = 6  # links and limits are read once in so many rounds
RETRY_ROUNDS = 60
MOST_LINKS = 36
_NVLINK_ERRORS = (0, 1, 2, 3)  # replay, recovery, CRC of flits, CRC of data
_GPU_IS_LOST = 15
_POLICY_POWER, _POLICY_THERMAL = 0, 1
_CLOCK_SM, _CLOCK_MEMORY = 1, 2
_ECC_CORRECTED, _ECC_UNCORRECTED, _ECC_SINCE_BOOT = 0, 1, 0

Ask = Callable[[str, Any], Any]
"""An NVML function by name and its arguments; None where it isn't answered."""


def _refusals(nvml: Any) -> tuple[type[Exception], ...]:
    """What a call may raise that the driver, the GPU or this release of the package lacks."""
    return (nvml.NVMLError, AttributeError, TypeError, ValueError, OSError)


@dataclass
class _Device:
    """A GPU or an instance; `kept`: what hardly changes, from the last slow round."""

    name: str
    handle: Any
    is_instance: bool
    kept: dict[str, float] = field(default_factory=dict)


class NvmlSource:
    """All GPUs that this user may see, or only those of the ranks where these are known."""

    name = "nvml"

    def __init__(self, load: Callable[[], Any] = lambda: importlib.import_module(MODULE)) -> None:
        """`load` gives the module pynvml, or raises ImportError."""
        self._load = load
        self._nvml: Any = None
        self._devices: list[_Device] = []
        self._round = -1
        self._retry_round = 0
        self._why = ""
        self.gpus: Mapping[str, Gpu] = {}
        """What they are, by normal bus id; replaced as a whole."""

    def read(self, targets: tuple[Target, ...]) -> tuple[Mapping[Place, Row], Mapping[str, str]]:
        """A row a GPU and instance."""
        self._round += 1
        if self._nvml is None and self._round >= self._retry_round:
            self._retry_round = self._round + RETRY_ROUNDS
            self._begin()
        if self._nvml is None:
            return {}, {self.name: self._why}
        wanted = {normal_bus(target.bus) for target in targets if target.bus}
        rows: dict[Place, Row] = {}
        absent: dict[str, str] = {}
        for device in self._devices:
            bus = device.name.split("/")[0]
            if wanted and bus not in wanted and wanted & self.gpus.keys():
                continue
            figures = self._figures(device, absent)
            if figures:
                rows["gpu", device.name] = row("gpu", figures)
        if not rows and not absent:
            absent[self.name] = "NVML shows no GPU"
        return rows, absent

    def _begin(self) -> None:
        try:
            nvml = self._load()
        except ImportError:
            self._why = f"the Python package {MODULE} isn't installed (nvidia-ml-py)"
            return
        try:
            nvml.nvmlInit()
            self._nvml = nvml
            self._devices = list(self._found(nvml))[:MOST_NAMES]
        except _refusals(nvml) as error:
            self._nvml = None
            self._why = f"NVML: {_words(error)}"

    def _ask(self, function: str, *arguments: Any) -> Any:
        try:
            return getattr(self._nvml, function)(*arguments)
        except _refusals(self._nvml):
            return None

    # -- which there are -----------------------------------------------------------------------------

    def _found(self, nvml: Any) -> Iterator[_Device]:
        gpus = {}
        for index in range(nvml.nvmlDeviceGetCount()):
            handle = self._ask("nvmlDeviceGetHandleByIndex", index)
            pci = self._ask("nvmlDeviceGetPciInfo", handle) if handle is not None else None
            if pci is None:
                continue
            bus = normal_bus(_text(pci.busId))
            yield _Device(bus, handle, is_instance=False)
            instances = list(self._instances(bus, handle))
            yield from instances
            gpus[bus] = Gpu(
                self._name("nvmlDeviceGetName", handle),
                self._name("nvmlDeviceGetUUID", handle),
                self._name("nvmlDeviceGetSerial", handle),
                tuple(self._name("nvmlDeviceGetUUID", instance.handle) for instance in instances),
            )
        self.gpus = gpus

    def _instances(self, bus: str, parent: Any) -> Iterator[_Device]:
        mode = self._ask("nvmlDeviceGetMigMode", parent)
        if not mode or mode[0] != 1:
            return
        for index in range(int(self._ask("nvmlDeviceGetMaxMigDeviceCount", parent) or 0)):
            handle = self._ask("nvmlDeviceGetMigDeviceHandleByIndex", parent, index)
            if handle is not None:
                numbers = [self._ask(f"nvmlDeviceGet{kind}InstanceId", handle) for kind in ("Gpu", "Compute")]
                yield _Device("/".join([bus, *(str(_or_index(n, index)) for n in numbers)]), handle, is_instance=True)

    def _name(self, function: str, handle: Any) -> str:
        return _text(self._ask(function, handle)) or NOT_KNOWN

    # -- one of them ---------------------------------------------------------------------------------

    def _figures(self, device: _Device, absent: dict[str, str]) -> dict[str, float]:
        handle = device.handle
        try:
            # The one call that a GPU always answers, unless it is gone.
            self._nvml.nvmlDeviceGetMemoryInfo(handle)
        except _refusals(self._nvml) as error:
            if getattr(error, "value", None) == _GPU_IS_LOST:
                absent[f"gpu {device.name}"] = f"NVML: {_words(error)}"
                return {}
        figures = _known(self._fast(handle))
        if self._round % SLOW_ROUNDS == 0 or not device.kept:
            links = self._links(handle)
            device.kept = _known(self._slow(handle) | self._link_figures(handle, links))
            figures |= _known(self._link_errors(handle, len(links)))
        figures |= device.kept
        if device.is_instance:
            # Its clocks and links are its parent's, where they are told already.
            figures = {name: value for name, value in figures.items() if name in _OF_INSTANCE}
        return figures

    def _fast(self, handle: Any) -> dict[str, Any]:
        power_mw = self._ask("nvmlDeviceGetPowerUsage", handle)
        busy = self._ask("nvmlDeviceGetUtilizationRates", handle)
        memory = self._ask("nvmlDeviceGetMemoryInfo", handle)
        return {
            "sm_mhz": self._ask("nvmlDeviceGetClockInfo", handle, _CLOCK_SM),
            "memory_mhz": self._ask("nvmlDeviceGetClockInfo", handle, _CLOCK_MEMORY),
            "temperature_c": self._ask("nvmlDeviceGetTemperature", handle, 0),
            "power_w": None if power_mw is None else power_mw / 1e3,
            "busy_share": None if busy is None else busy.gpu / 100,
            "memory_used_bytes": None if memory is None else memory.used,
            "pcie_generation": self._ask("nvmlDeviceGetCurrPcieLinkGeneration", handle),
            "pcie_width": self._ask("nvmlDeviceGetCurrPcieLinkWidth", handle),
            "thermal_s": self._held_s(handle, _POLICY_THERMAL),
            "power_s": self._held_s(handle, _POLICY_POWER),
            "pcie_replays": self._ask("nvmlDeviceGetPcieReplayCounter", handle),
            "ecc_corrected": self._ask("nvmlDeviceGetTotalEccErrors", handle, _ECC_CORRECTED, _ECC_SINCE_BOOT),
            "ecc_uncorrected": self._ask("nvmlDeviceGetTotalEccErrors", handle, _ECC_UNCORRECTED, _ECC_SINCE_BOOT),
            **self._reasons(handle),
        }

    def _slow(self, handle: Any) -> dict[str, Any]:
        limit_mw = self._ask("nvmlDeviceGetEnforcedPowerLimit", handle)
        remapped = self._ask("nvmlDeviceGetRemappedRows", handle)
        return {
            "sm_max_mhz": self._ask("nvmlDeviceGetMaxClockInfo", handle, _CLOCK_SM),
            "memory_max_mhz": self._ask("nvmlDeviceGetMaxClockInfo", handle, _CLOCK_MEMORY),
            "slowdown_c": self._ask("nvmlDeviceGetTemperatureThreshold", handle, 1),
            "power_limit_w": None if limit_mw is None else limit_mw / 1e3,
            "pcie_max_generation": self._ask("nvmlDeviceGetMaxPcieLinkGeneration", handle),
            "pcie_max_width": self._ask("nvmlDeviceGetMaxPcieLinkWidth", handle),
            "rows_pending": None if remapped is None else remapped[2],
        }

    def _held_s(self, handle: Any, policy: int) -> float | None:
        status = self._ask("nvmlDeviceGetViolationStatus", handle, policy)
        return None if status is None else status.violationTime / 1e9

    def _reasons(self, handle: Any) -> dict[str, float]:
        bits = self._ask("nvmlDeviceGetCurrentClocksEventReasons", handle)
        if bits is None:  # before release 535 of the driver
            bits = self._ask("nvmlDeviceGetCurrentClocksThrottleReasons", handle)
        if bits is None:
            return {}
        return {f"reason_{name}": float(bool(bits & bit)) for name, (bit, _) in REASONS.items()}

    def _links(self, handle: Any) -> list[int]:
        """The state of each NVLink (1: up); none of a GPU that has no NVLink."""
        states = (self._ask("nvmlDeviceGetNvLinkState", handle, link) for link in range(MOST_LINKS))
        return list(itertools.takewhile(lambda state: state is not None, states))

    def _link_figures(self, handle: Any, links: list[int]) -> dict[str, Any]:
        if not links:
            return {}
        return {"nvlinks": links.count(1), "nvlink_version": self._ask("nvmlDeviceGetNvLinkVersion", handle, 0)}

    def _link_errors(self, handle: Any, links: int) -> dict[str, Any]:
        """Of all links so far; not kept between slow rounds, a counter that seems to stand would be a lie."""
        errors = [
            self._ask("nvmlDeviceGetNvLinkErrorCounter", handle, link, kind)
            for link in range(links)
            for kind in _NVLINK_ERRORS
        ]
        counted = [count for count in errors if count is not None]
        return {"nvlink_errors": sum(counted) if counted else None}


_OF_INSTANCE = ("memory_used_bytes", "busy_share", "ecc_corrected", "ecc_uncorrected")


def _or_index(number: Any, index: int) -> int:
    return index if number is None else int(number)


def _text(value: Any) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value or "")


def _words(error: Exception) -> str:
    return "".join(c for c in str(error) if c.isprintable())[:150] or type(error).__name__


def _known(figures: Mapping[str, Any]) -> dict[str, float]:
    """Without what wasn't answered, and without the driver's mark for "not available" (all bits set)."""
    found = {name: float(value) for name, value in figures.items() if name in FIELDS["gpu"] and value is not None}
    return {name: value for name, value in found.items() if math.isfinite(value) and value not in _NO_VALUE}


_NO_VALUE = (float(2**32 - 1), float(2**64 - 1))
