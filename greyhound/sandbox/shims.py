"""Let megatron-core train CPU tensors: answers for the few CUDA calls that it makes without asking.

For the test bed only. Nothing here pretends that a GPU exists to code that checks `torch.cuda.is_available()`.
"""

import functools
from collections.abc import Callable
from typing import Any

import torch

_FACTORIES = ("tensor", "zeros", "ones", "empty", "full", "arange", "rand", "randn")
_CUDA_TYPE_NAMES = {
    torch.float32: "torch.cuda.FloatTensor",
    torch.float16: "torch.cuda.HalfTensor",
    torch.bfloat16: "torch.cuda.BFloat16Tensor",
}
_CPU = torch.device("cpu")


def _on_cpu(factory: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap a torch factory so that device="cuda" means the host's memory."""

    @functools.wraps(factory)
    def made(*args: Any, **kwargs: Any) -> Any:
        device = kwargs.get("device")
        if device is not None and torch.device(device).type == "cuda":
            kwargs["device"] = _CPU
        return factory(*args, **kwargs)

    return made


def _type_as_on_cuda(original: Callable[..., Any]) -> Callable[..., Any]:
    """Megatron's optimizers sort parameters by the name of their CUDA type."""

    @functools.wraps(original)
    def type_of(self: Any, *args: Any, **kwargs: Any) -> Any:
        if args or kwargs:
            return original(self, *args, **kwargs)
        return _CUDA_TYPE_NAMES.get(self.dtype) or original(self)

    return type_of


def _get_rng_state(*_args: Any, **_kwargs: Any) -> Any:
    return torch.get_rng_state()


def _set_rng_state(state: Any, *_args: Any, **_kwargs: Any) -> None:
    torch.set_rng_state(state)


class _HostStream:
    """The stream of CPU tensors: whatever the host did before has happened."""

    def synchronize(self) -> None: ...

    def wait_event(self, _event: Any) -> None: ...

    def wait_stream(self, _stream: Any) -> None: ...


def _uncompiled(function: Any = None, **_options: Any) -> Any:
    """torch.compile without the compiler: importing it costs a second a rank, and the model is too small to gain."""
    return function if function is not None else _uncompiled


def install() -> None:
    """Patch torch and megatron.core.tensor_parallel.random in this process, once, before megatron.core is imported."""
    torch.compile = _uncompiled
    from megatron.core.tensor_parallel import random as megatron_random

    for name in _FACTORIES:
        setattr(torch, name, _on_cpu(getattr(torch, name)))
    torch.Tensor.cuda = lambda self, *_args, **_kwargs: self
    torch.Tensor.type = _type_as_on_cuda(torch.Tensor.type)
    torch.cuda.current_device = lambda: _CPU
    torch.cuda.current_stream = torch.cuda.default_stream = lambda *_args: _HostStream()
    torch.cuda.synchronize = lambda *_args: None
    torch.cuda.get_rng_state = _get_rng_state
    torch.cuda.set_rng_state = _set_rng_state
    megatron_random._get_cuda_rng_state = _get_rng_state
    megatron_random._set_cuda_rng_state = _set_rng_state
