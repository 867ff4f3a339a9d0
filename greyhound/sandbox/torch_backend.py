"""Load the C++ torch backend over the stand-in and register it with torch.distributed (test bed only)."""

import ctypes
import importlib.machinery
import importlib.util
import os
from pathlib import Path
from types import ModuleType

BACKEND_NAME = "greyhound"
_MODULE_NAME = "greyhound_torch_backend"
_STANDIN = Path(__file__).resolve().parent.parent / "_native" / "standin"
_LIBRARY = _STANDIN / "libgreyhound_torch_backend.so"
_RUNTIME = _STANDIN / "libcudart.so.12"
_NCCL = _STANDIN / "libnccl.so.2"


def preload_runtime() -> None:
    """Load the stand-in's CUDA runtime before torch: a CUDA build brings its own, and the first one is found first."""
    if _RUNTIME.exists():
        ctypes.CDLL(str(_RUNTIME))


def _name_nccl_for_the_hook() -> None:
    """In a process where a CUDA build of torch has loaded a real NCCL, tell the hook which of the two is meant."""
    libraries = {line.split()[-1] for line in Path("/proc/self/maps").read_text().splitlines() if "/libnccl.so" in line}
    if libraries - {str(_NCCL)}:
        os.environ.setdefault("GREYHOUND_NCCL_LIB", str(_NCCL))


def load() -> ModuleType:
    """The native module: create, set_device, device_count, device_time, synchronize.

    Raises:
        RuntimeError: the library isn't built, or was built for another torch or Python.
    """
    preload_runtime()
    import torch.distributed  # noqa: F401  the library's types are registered by it

    _name_nccl_for_the_hook()
    if not _LIBRARY.exists():
        raise RuntimeError(f"{_LIBRARY} is missing; build it with `make -C hook/standin torch_backend`")
    loader = importlib.machinery.ExtensionFileLoader(_MODULE_NAME, str(_LIBRARY))
    spec = importlib.util.spec_from_file_location(_MODULE_NAME, _LIBRARY, loader=loader)
    if spec is None:
        raise RuntimeError(f"{_LIBRARY} is no extension module")
    try:
        native = importlib.util.module_from_spec(spec)
        loader.exec_module(native)
    except ImportError as error:
        raise RuntimeError(
            f"{_LIBRARY} doesn't load ({error}); build it again with this interpreter: "
            "`make -C hook/standin torch_backend PYTHON=...`"
        ) from error
    return native


def register() -> ModuleType:
    """Register the backend as "greyhound" for CPU tensors; returns the native module."""
    import torch.distributed as dist

    native = load()
    dist.Backend.register_backend(BACKEND_NAME, native.create, extended_api=True, devices=["cpu"])
    return native


def choose_device(native: ModuleType, local_rank: int) -> None:
    """Use the visible GPU of this local rank; with fewer GPUs than ranks they are shared.

    Raises:
        RuntimeError: this node has no GPU in the stand-in's page, or CUDA_VISIBLE_DEVICES hides all.
    """
    count = native.device_count()
    if count == 0:
        names = ("GREYHOUND_STANDIN_PAGE", "GREYHOUND_STANDIN_NODE", "SLURMD_NODENAME", "CUDA_VISIBLE_DEVICES")
        given = ", ".join(f"{name}={os.environ[name]}" for name in names if name in os.environ)
        raise RuntimeError(f"the stand-in shows no GPU here ({given}); does the page name this node's GPUs?")
    native.set_device(local_rank % count)
