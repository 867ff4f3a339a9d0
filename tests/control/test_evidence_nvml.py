"""GPUs as NVML shows them: a fake of the package with real shapes, and the real one's constants."""

from types import SimpleNamespace

import pynvml
import pytest

from greyhound.control import evidence_nvml
from greyhound.control.evidence_files import Target
from greyhound.control.evidence_nvml import NvmlSource
from greyhound.localize.cause_evidence import FIELDS, REASONS
from greyhound.localize.identity import Gpu

BUS, OTHER = "0000:65:00.0", "0000:b3:00.0"
NOT_SUPPORTED, LOST = 3, 15
VALUES = {
    "nvmlDeviceGetPowerUsage": 612_000,
    "nvmlDeviceGetUtilizationRates": SimpleNamespace(gpu=97, memory=40),
    "nvmlDeviceGetMemoryInfo": SimpleNamespace(used=7 << 30),
    "nvmlDeviceGetTemperature": 71,
    "nvmlDeviceGetCurrPcieLinkGeneration": 5,
    "nvmlDeviceGetCurrPcieLinkWidth": 16,
    "nvmlDeviceGetMaxPcieLinkGeneration": 5,
    "nvmlDeviceGetMaxPcieLinkWidth": 16,
    "nvmlDeviceGetCurrentClocksEventReasons": 4 | 64,
    "nvmlDeviceGetViolationStatus": SimpleNamespace(violationTime=2_500_000_000),
    "nvmlDeviceGetEnforcedPowerLimit": 700_000,
    "nvmlDeviceGetTemperatureThreshold": 92,
    "nvmlDeviceGetRemappedRows": [1, 0, 0, 0],
    "nvmlDeviceGetPcieReplayCounter": 0,
    "nvmlDeviceGetTotalEccErrors": 3,
    "nvmlDeviceGetNvLinkVersion": 7,
    "nvmlDeviceGetNvLinkErrorCounter": 1,
    "nvmlDeviceGetName": "NVIDIA H200",
}


class FaultError(Exception):
    """NVML's own kind."""

    def __init__(self, value):
        super().__init__({NOT_SUPPORTED: "Not Supported", LOST: "GPU is lost"}[value])
        self.value = value


class Nvml:
    """Two GPUs, named by their bus; `refused` calls aren't supported, by GPU or instance if a pair."""

    NVMLError = FaultError

    def __init__(self, refused=(), instances=0, links=18):
        self.refused = set(refused)
        self.instances = instances
        self.links = links
        self.lost = set()
        self.calls = []

    def nvmlInit(self):  # noqa: N802
        self.calls.append("nvmlInit")

    def nvmlDeviceGetCount(self):  # noqa: N802
        return 2

    def __getattr__(self, name):
        if not name.startswith("nvml"):
            raise AttributeError(name)
        return lambda *given: self.answer(name, *given)

    def answer(self, name, handle, *more):
        self.calls.append(name)
        if name == "nvmlDeviceGetHandleByIndex":
            return (BUS, OTHER)[handle]
        if handle in self.lost:
            raise FaultError(LOST)
        if name in self.refused or (name, handle) in self.refused:
            raise FaultError(NOT_SUPPORTED)
        if name in ("nvmlDeviceGetClockInfo", "nvmlDeviceGetMaxClockInfo"):
            return {1: 1980, 2: 3201}[more[0]]
        if name == "nvmlDeviceGetNvLinkState":
            if more[0] >= self.links:
                raise FaultError(NOT_SUPPORTED)
            return int(more[0] != 5)
        named = {
            "nvmlDeviceGetPciInfo": SimpleNamespace(busId=f"0000{handle}".upper()),
            "nvmlDeviceGetUUID": f"GPU-{handle}",
            "nvmlDeviceGetSerial": f"serial {handle}".encode(),
            "nvmlDeviceGetMigMode": [1, 1] if self.instances else [0, 0],
            "nvmlDeviceGetMaxMigDeviceCount": 7,
            "nvmlDeviceGetGpuInstanceId": 9,
            "nvmlDeviceGetComputeInstanceId": 0,
        }
        if name == "nvmlDeviceGetMigDeviceHandleByIndex":
            if more[0] >= self.instances:
                raise FaultError(NOT_SUPPORTED)
            return f"{handle} MIG {more[0]}"
        if name not in named and name not in VALUES:
            raise FaultError(NOT_SUPPORTED)
        return named[name] if name in named else VALUES[name]


def read(source, targets=()):
    rows, absent = source.read(targets)
    return {
        name: {key: value for key, value in zip(FIELDS["gpu"], values, strict=True) if value == value}
        for (_, name), values in rows.items()
    }, absent


def test_all_figures_of_a_gpu():
    found, absent = read(NvmlSource(lambda: Nvml()))
    assert absent == {} and set(found) == {BUS, OTHER}
    assert set(found[BUS]) == set(FIELDS["gpu"])
    assert {name for name in REASONS if found[BUS][f"reason_{name}"]} == {"power_cap", "hw_thermal"}
    expected = {
        "sm_mhz": 1980,
        "memory_mhz": 3201,
        "power_w": 612,
        "thermal_s": 2.5,
        "nvlinks": 17,
        "nvlink_errors": 18 * 4,
    }
    assert {name: found[BUS][name] for name in expected} == expected


def test_what_a_gpu_refuses_is_missing_and_the_rest_is_there():
    refused = [name for name in VALUES if name != "nvmlDeviceGetTemperature"]
    found, absent = read(NvmlSource(lambda: Nvml(refused, links=0)))
    assert set(found[BUS]) == {"sm_mhz", "sm_max_mhz", "memory_mhz", "memory_max_mhz", "temperature_c"}
    assert absent == {}


def test_the_mark_for_not_available_is_no_figure(monkeypatch):
    monkeypatch.setitem(VALUES, "nvmlDeviceGetPcieReplayCounter", 2**32 - 1)
    assert "pcie_replays" not in read(NvmlSource(lambda: Nvml()))[0][BUS]


def test_an_older_driver_tells_its_reasons_by_the_older_call(monkeypatch):
    monkeypatch.setitem(VALUES, "nvmlDeviceGetCurrentClocksThrottleReasons", 8)
    found, _ = read(NvmlSource(lambda: Nvml(["nvmlDeviceGetCurrentClocksEventReasons"])))
    assert found[BUS]["reason_hw_slowdown"] == 1.0 and found[BUS]["reason_idle"] == 0.0


def test_mig_has_its_parent_and_its_instances():
    per_instance = {(name, f"{BUS} MIG 0") for name in ("nvmlDeviceGetClockInfo", "nvmlDeviceGetUtilizationRates")}
    source = NvmlSource(lambda: Nvml(per_instance | {("nvmlDeviceGetUtilizationRates", BUS)}, instances=1))
    found, _ = read(source)
    assert {BUS, f"{BUS}/9/0"} <= set(found)
    assert found[f"{BUS}/9/0"] == {"memory_used_bytes": 7 << 30, "ecc_corrected": 3, "ecc_uncorrected": 3}
    assert found[BUS]["sm_mhz"] == 1980 and "busy_share" not in found[BUS]
    assert source.gpus[BUS] == Gpu("NVIDIA H200", f"GPU-{BUS}", f"serial {BUS}", (f"GPU-{BUS} MIG 0",))


def test_a_gpu_without_a_serial_has_none():
    source = NvmlSource(lambda: Nvml(["nvmlDeviceGetSerial"]))
    source.read(())
    assert source.gpus[BUS].serial == "n/a"


def test_only_the_ranks_gpus_are_read_where_they_are_known():
    found, _ = read(NvmlSource(lambda: Nvml()), (Target("r", 1, "00000000:65:00.0"),))
    assert set(found) == {BUS}
    found, _ = read(NvmlSource(lambda: Nvml()), (Target("r", 1, "stand-in"),))
    assert set(found) == {BUS, OTHER}


def test_links_and_limits_are_not_read_each_time():
    nvml = Nvml()
    source = NvmlSource(lambda: nvml)
    read(source)
    nvml.calls.clear()
    found, _ = read(source)
    assert "nvmlDeviceGetNvLinkState" not in nvml.calls
    assert found[BUS]["nvlinks"] == 17 and "nvlink_errors" not in found[BUS]


def test_a_lost_gpu_is_said():
    nvml = Nvml()
    source = NvmlSource(lambda: nvml)
    read(source)
    nvml.lost.add(BUS)
    found, absent = read(source)
    assert set(found) == {OTHER} and absent == {f"gpu {BUS}": "NVML: GPU is lost"}


def test_without_the_package_the_driver_or_a_gpu_the_reason_is_given():
    def missing():
        raise ImportError

    class NoDriver(Nvml):
        def nvmlInit(self):  # noqa: N802
            raise FaultError(NOT_SUPPORTED)

    class NoGpu(Nvml):
        def nvmlDeviceGetCount(self):  # noqa: N802
            return 0

    whys = [read(NvmlSource(load)) for load in (missing, NoDriver, NoGpu)]
    assert [found for found, _ in whys] == [{}, {}, {}]
    assert [absent["nvml"] for _, absent in whys] == [
        "the Python package pynvml isn't installed (nvidia-ml-py)",
        "NVML: Not Supported",
        "NVML shows no GPU",
    ]


def test_a_missing_driver_is_asked_for_again_later(monkeypatch):
    monkeypatch.setattr(evidence_nvml, "RETRY_ROUNDS", 3)
    loads = []
    source = NvmlSource(lambda: loads.append(1) or missing_module())
    for _ in range(7):
        source.read(())
    assert len(loads) == 3


def missing_module():
    raise ImportError


def test_the_real_package_has_what_is_asked_for_and_these_numbers():
    assert pynvml.__name__ == evidence_nvml.MODULE
    for name in VALUES:
        assert callable(getattr(pynvml, name))
    assert (evidence_nvml._CLOCK_SM, evidence_nvml._CLOCK_MEMORY) == (pynvml.NVML_CLOCK_SM, pynvml.NVML_CLOCK_MEM)
    assert evidence_nvml._POLICY_THERMAL == pynvml.NVML_PERF_POLICY_THERMAL
    assert evidence_nvml._POLICY_POWER == pynvml.NVML_PERF_POLICY_POWER
    assert evidence_nvml._GPU_IS_LOST == pynvml.NVML_ERROR_GPU_IS_LOST
    assert evidence_nvml._ECC_CORRECTED == pynvml.NVML_MEMORY_ERROR_TYPE_CORRECTED
    assert evidence_nvml._ECC_UNCORRECTED == pynvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED
    assert evidence_nvml._ECC_SINCE_BOOT == pynvml.NVML_VOLATILE_ECC
    assert pynvml.NVML_TEMPERATURE_THRESHOLD_SLOWDOWN == 1
    reasons = {name: bit for name, (bit, _) in REASONS.items()}
    assert reasons["sw_thermal"] == pynvml.nvmlClocksEventReasonSwThermalSlowdown
    assert reasons["hw_thermal"] == pynvml.nvmlClocksEventReasonHwThermalSlowdown
    assert reasons["power_brake"] == pynvml.nvmlClocksEventReasonHwPowerBrakeSlowdown
    assert reasons["idle"] == pynvml.nvmlClocksEventReasonGpuIdle


def test_the_real_package_where_there_is_no_driver():
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        assert read(NvmlSource())[1]["nvml"].startswith("NVML: ")
    else:
        pytest.skip("this machine has a driver")
