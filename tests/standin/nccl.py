"""NCCL and CUDA through ctypes, as thin as the tests need it."""

import ctypes as c
import os
from pathlib import Path

import numpy as np

LIBRARY_DIR = Path(
    os.environ.get("GREYHOUND_STANDIN_TEST_DIR")
    or Path(__file__).resolve().parents[2] / "greyhound" / "_native" / "standin"
)
SUCCESS, SYSTEM_ERROR, INVALID_ARGUMENT, INVALID_USAGE, REMOTE_ERROR, IN_PROGRESS = 0, 2, 4, 5, 6, 7
NOT_READY = 600
DTYPES = {
    "int8": 0, "uint8": 1, "int32": 2, "uint32": 3, "int64": 4,
    "uint64": 5, "float16": 6, "float32": 7, "float64": 8, "bfloat16": 9,
}  # fmt: skip
OPS = {"sum": 0, "prod": 1, "max": 2, "min": 3, "avg": 4}


class NcclError(Exception):
    """A call that didn't return ncclSuccess; `.code` is what it returned."""

    def __init__(self, name: str, code: int, text: str) -> None:
        super().__init__(f"{name} returned {code}: {text}")
        self.code = code


class UniqueId(c.Structure):
    _fields_ = [("internal", c.c_char * 128)]


class Config(c.Structure):
    _fields_ = [("size", c.c_size_t), ("magic", c.c_uint), ("version", c.c_uint), ("blocking", c.c_int)]


class Library:
    """The two stand-in libraries; arguments are converted by type, results are checked."""

    def __init__(self) -> None:
        self.cuda = c.CDLL(str(LIBRARY_DIR / "libcudart.so.12"))
        self.nccl = c.CDLL(str(LIBRARY_DIR / "libnccl.so.2"))
        self.nccl.ncclGetLastError.restype = c.c_char_p
        self.cuda.standinGpuSpeed.restype = c.c_double
        self.cuda.standinGemm.restype = c.c_double
        self.cuda.standinNow.restype = c.c_uint64

    def __call__(self, name: str, *arguments: object) -> None:
        library = self.nccl if name.startswith(("nccl", "pnccl")) else self.cuda
        code = getattr(library, name)(*[convert(a) for a in arguments])
        if code != SUCCESS:
            text = self.nccl.ncclGetLastError(None).decode() if library is self.nccl else ""
            raise NcclError(name, code, text)


def convert(argument: object) -> object:
    """Sizes as size_t, arrays as pointers, everything else as it is."""
    if isinstance(argument, np.ndarray):
        return c.c_void_p(argument.ctypes.data)
    if isinstance(argument, Size):
        return c.c_size_t(argument)
    if isinstance(argument, float):
        return c.c_double(argument)
    return argument


class Size(int):
    """A count that the C function takes as size_t."""


lib = Library()


def new_stream() -> c.c_void_p:
    stream = c.c_void_p()
    lib("cudaStreamCreate", c.byref(stream))
    return stream


def new_event() -> c.c_void_p:
    event = c.c_void_p()
    lib("cudaEventCreate", c.byref(event))
    return event


def elapsed_s(start: c.c_void_p, end: c.c_void_p) -> float:
    milliseconds = c.c_float()
    lib("cudaEventElapsedTime", c.byref(milliseconds), start, end)
    return milliseconds.value / 1e3


def kernel(stream: c.c_void_p, work_s: float, launch_ns: int = 0) -> None:
    lib("standinKernel", stream, c.c_uint64(launch_ns), work_s)


def sync(stream: c.c_void_p | None = None) -> None:
    lib("cudaStreamSynchronize", stream)


def async_error(comm: c.c_void_p) -> int:
    error = c.c_int()
    lib("ncclCommGetAsyncError", comm, c.byref(error))
    return error.value
