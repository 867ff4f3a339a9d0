"""Test data: small integers, exact in every type, so that results can be compared bit by bit."""

import numpy as np

from tests.standin.nccl import DTYPES

NUMPY = {name: np.dtype("uint16" if name == "bfloat16" else name) for name in DTYPES}


def to_bfloat16(values: np.ndarray) -> np.ndarray:
    """Nearest even, as uint16."""
    bits = values.astype(np.float32).view(np.uint32).astype(np.uint64)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)


def from_bfloat16(bits: np.ndarray) -> np.ndarray:
    return (bits.astype(np.uint32) << 16).view(np.float32)


def encode(values: np.ndarray, dtype: str) -> np.ndarray:
    return to_bfloat16(values) if dtype == "bfloat16" else values.astype(NUMPY[dtype])


def decode(data: np.ndarray, dtype: str) -> np.ndarray:
    return (from_bfloat16(data) if dtype == "bfloat16" else data).astype(np.float64)


def values(rank: int, count: int, dtype: str) -> np.ndarray:
    """Integers in [-3, 3], or [1, 3] for unsigned types; different on every rank."""
    low = 1 if dtype.startswith("uint") else -3
    return np.random.default_rng([rank, count]).integers(low, 4, count)


def reduced(size: int, count: int, dtype: str, op: str) -> np.ndarray:
    """What the reduction over all ranks gives, in the type's encoding."""
    stack = np.stack([values(r, count, dtype) for r in range(size)])
    if op == "avg":
        mean = stack.sum(0) / size
        return encode(mean if "float" in dtype else np.trunc(mean), dtype)
    result = {"sum": np.sum, "prod": np.prod, "max": np.max, "min": np.min}[op](stack, axis=0)
    return encode(result, dtype)


def same(got: np.ndarray, expected: np.ndarray, dtype: str, op: str) -> bool:
    """Equal bit by bit; averages in floating point may differ in the last place."""
    if op != "avg" or "float" not in dtype:
        return np.array_equal(decode(got, dtype), decode(expected, dtype))
    tolerance = {"bfloat16": 2**-7, "float16": 2**-10}.get(dtype, 1e-6)
    return np.allclose(decode(got, dtype), decode(expected, dtype), rtol=tolerance, atol=0)
