"""Build libgreyhound_torch_backend.so with one compiler call, against the torch of the interpreter that runs this.

Called by `make -C hook/standin torch_backend`. Skipped when a stamp beside the library says that the same sources
were built for the same torch and Python. Needs the stand-in's libnccl.so.2 and libcudart.so.12 to exist.
"""

import hashlib
import importlib.metadata
import importlib.util
import os
import shlex
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
SOURCES = (HERE / "torch_backend.cpp", HERE / "torch_backend_issue.h", HERE / "torch_backend_stream.h")
INCLUDE = HERE / "include"
OUT = HERE.parent.parent / "greyhound" / "_native" / "standin"
LIBRARY = OUT / "libgreyhound_torch_backend.so"
NEEDED = ("libnccl.so.2", "libcudart.so.12")
STAMP = OUT / ".torch_backend.stamp"


def stamp_text(torch_version: str) -> str:
    """Everything that asks for a new build when it changes."""
    digest = hashlib.sha256()
    for path in (*SOURCES, Path(__file__), *sorted(INCLUDE.glob("*.h"))):
        digest.update(path.read_bytes())
    return f"torch {torch_version}\npython {sys.version_info[:2]}\nsources {digest.hexdigest()}\n"


def link_stubs(folder: Path) -> list[str]:
    """Empty libraries named `$ORIGIN/libX.so.N`, so that the loader takes the files beside the backend.

    By the bare name it would take the real NCCL that a CUDA build of torch has loaded already.
    """
    stubs = []
    for name in NEEDED:
        stub = folder / name
        command = [*shlex.split(os.environ.get("CC", "cc")), "-shared", "-xc", os.devnull]
        subprocess.run([*command, f"-Wl,-soname,$ORIGIN/{name}", "-o", str(stub)], check=True)
        stubs.append(str(stub))
    return stubs


def compiler_call(stubs: list[str]) -> list[str]:
    """The one command: torch's headers as system headers, its C++ ABI, the stand-in by its place."""
    import torch
    from torch.utils.cpp_extension import include_paths, library_paths

    includes = [f"-isystem{path}" for path in (*include_paths(), sysconfig.get_path("include"))]
    libraries = [f"-L{path}" for path in library_paths()]
    abi = int(torch._C._GLIBCXX_USE_CXX11_ABI)
    return [
        *shlex.split(os.environ.get("CXX", "g++")),
        *["-std=gnu++20", "-O1", "-fPIC", "-shared", "-fvisibility=hidden", "-Wall", "-Wextra", "-Werror"],
        "-Wno-maybe-uninitialized",  # GCC 14 sees it in torch's own headers, inlined into our code
        f"-D_GLIBCXX_USE_CXX11_ABI={abi}",
        *includes,
        f"-I{INCLUDE}",
        str(SOURCES[0]),
        "-o",
        str(LIBRARY) + ".new",
        "-Wl,--no-as-needed",
        *stubs,
        "-Wl,--as-needed",
        *libraries,
        *["-ltorch_python", "-ltorch", "-ltorch_cpu", "-lc10", "-lpthread"],
        "-Wl,-soname,libgreyhound_torch_backend.so",
    ]


def main() -> int:
    if importlib.util.find_spec("torch") is None:
        print(f"torch_backend: {sys.executable} has no torch; name a Python that has it with PYTHON=", file=sys.stderr)
        return 1
    torch_version = importlib.metadata.version("torch")
    wanted = stamp_text(torch_version)
    if LIBRARY.exists() and STAMP.exists() and STAMP.read_text() == wanted:
        print(f"torch_backend: up to date (torch {torch_version})")
        return 0
    for name in NEEDED:
        if not (OUT / name).exists():
            print(f"torch_backend: {OUT / name} is missing; run `make -C hook/standin` first", file=sys.stderr)
            return 1
    print(f"torch_backend: compiling for torch {torch_version} (about a minute)", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        status = subprocess.run(compiler_call(link_stubs(Path(folder))), check=False).returncode
    if status != 0:
        print(f"torch_backend: the compiler failed with status {status}", file=sys.stderr)
        return 1
    Path(str(LIBRARY) + ".new").replace(LIBRARY)
    STAMP.write_text(wanted)
    return 0


if __name__ == "__main__":
    sys.exit(main())
