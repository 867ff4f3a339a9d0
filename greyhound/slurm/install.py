"""Puts the plugin into a site's Slurm and takes it out again, so that no submission in between is refused.

Files are replaced by rename and come before the line that names them; at an uninstall a stub takes the plugin's place,
which still accepts `--greyhound`: without it every script that carries the option would be refused.
"""

import os
import secrets
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from greyhound.config import native_dir
from greyhound.slurm.plugstack import PLUGIN, Line, read

STUB = "spank_greyhound_stub.so"
PARTS = (PLUGIN, STUB, "greyhound_waiter")
HOOK = "libgreyhound_hook.so"
DEFAULT_ARGUMENTS = "max_mode=observe"
BUILD_TIMEOUT_S = 300


class InstallError(RuntimeError):
    """The site is left as it was; the text says why and what mends it."""


@dataclass(frozen=True)
class Site:
    """Where things go; every node sees ``prefix``, ``slurm_include`` holds slurm/spank.h if make can't find it."""

    prefix: Path
    plugstack: Path
    slurm_include: Path | None = None

    @property
    def library(self) -> Path:
        """The folder of the C parts."""
        return self.prefix / "lib" / "greyhound"

    @property
    def plugin(self) -> Path:
        """The plugin as plugstack.conf names it."""
        return self.library / PLUGIN

    @property
    def line(self) -> str:
        """Our line in plugstack.conf."""
        return f"optional {self.plugin} prefix={self.prefix} {DEFAULT_ARGUMENTS}"


def sources() -> Path:
    """The plugin's C sources: beside this checkout, or in the installed package."""
    checkout = Path(__file__).resolve().parents[2] / "spank"
    return checkout if (checkout / "dispatch.c").is_file() else native_dir() / "spank"


def build(site: Site, into: Path) -> str:
    """Compile plugin, stub and waiter for this Slurm; what make said. InstallError if that fails."""
    source = sources()
    if not (source / "Makefile").is_file():
        raise InstallError(f"the plugin's sources aren't in {source}: install Greyhound from its source tree")
    work = into / "source"  # an installed package may be read-only
    shutil.copytree(source, work)
    command = ["make", "-C", str(work), f"OUT={into}", "plugin", "stub", "waiter"]
    command += [f"SLURM_INCLUDE={site.slurm_include}"] if site.slurm_include else []
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=BUILD_TIMEOUT_S, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise InstallError(f"make can't be run: {error}") from None
    if done.returncode != 0:
        raise InstallError(f"the plugin doesn't build here:\n{(done.stderr or done.stdout).strip()}")
    return "\n".join(line for line in done.stdout.splitlines() if "Slurm" in line)


def replace_file(source: Path, target: Path, mode: int = 0o755) -> None:
    """Copy into the target's folder and rename: who has the old one open keeps it."""
    half = target.with_name(f".{target.name}.{secrets.token_hex(4)}")
    try:
        shutil.copyfile(source, half)
        half.chmod(mode)
        half.replace(target)
    finally:
        half.unlink(missing_ok=True)


def write_config(path: Path, text: str) -> None:
    """Replace plugstack.conf in one step, with its old mode and owner. The partial file matches no *.conf.

    A link to the file that a whole site shares stays one.
    """
    path = path.resolve()
    old = path.stat() if path.exists() else None
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    half = Path(name)
    try:
        with os.fdopen(handle, "w") as file:
            file.write(text)
        half.chmod(old.st_mode & 0o7777 if old else 0o644)
        if old is not None and os.geteuid() == 0:
            os.chown(half, old.st_uid, old.st_gid)
        half.replace(path)
    finally:
        half.unlink(missing_ok=True)


def with_line(text: str, line: str) -> str:
    """The configuration with our line at its end."""
    return f"{text.rstrip()}\n{line}\n" if text.strip() else f"{line}\n"


def without_lines(text: str) -> str:
    """The configuration without any line of ours; comments and other plugins stay as they are."""
    kept = [row for row in text.splitlines() if row.lstrip().startswith("#") or PLUGIN not in row]
    return "\n".join(kept) + "\n" if kept else ""


class Installer:
    """Carries out the steps, or with ``dry_run`` only tells them."""

    def __init__(self, site: Site, say: Callable[[str], None], dry_run: bool = False) -> None:
        self._site = site
        self._say = say
        self._dry_run = dry_run

    def _do(self, what: str, action: Callable[[], object]) -> None:
        self._say(f"{'would ' if self._dry_run else ''}{what}")
        if self._dry_run:
            return
        try:
            action()
        except OSError as error:
            raise InstallError(f"could not {what}: {error.strerror}: {error.filename}") from None

    def install(self) -> None:
        """Build, put the files in place, then add the line; the same again upgrades and changes no line."""
        site = self._site
        self._check_prefix()
        self._check_line()
        with tempfile.TemporaryDirectory(prefix="greyhound-build-") as folder:
            built = Path(folder)
            self._say(build(site, built))
            self._do(f"make {site.library}", lambda: site.library.mkdir(parents=True, exist_ok=True))
            hook = native_dir() / HOOK
            if not hook.is_file():
                raise InstallError(f"{hook} is missing: install Greyhound with a C compiler at hand")
            for source in [hook, *(built / part for part in reversed(PARTS))]:
                target = site.library / source.name
                self._do(f"put {source.name} into {site.library}", partial(replace_file, source, target))
        if self._our_lines():
            self._say(f"{site.plugstack} has the line already; it is left as it is")
        else:
            text = site.plugstack.read_text() if site.plugstack.exists() else ""
            self._do(
                f"add to {site.plugstack}: {site.line}",
                lambda: write_config(site.plugstack, with_line(text, site.line)),
            )

    def _our_lines(self) -> list[Line]:
        try:
            return list(read(self._site.plugstack))
        except (FileNotFoundError, NotADirectoryError):
            return []
        except OSError as error:
            raise InstallError(f"{self._site.plugstack} can't be read: {error.strerror}") from None

    def _check_prefix(self) -> None:
        """What nodes would stumble over: Slurm splits the line at blanks, and the plugin starts PREFIX/bin/python."""
        prefix = self._site.prefix
        if any(letter.isspace() for letter in str(prefix)):
            raise InstallError(
                f"prefix {str(prefix)!r} has a blank in it, at which Slurm splits the line: take another"
            )
        python = prefix / "bin" / "python"
        if not os.access(python, os.X_OK):
            mend = f"make it with `python3 -m venv {prefix}` and install Greyhound there"
            raise InstallError(f"{python} is missing, which every watched node starts: {mend}")

    def _check_line(self) -> None:
        others = [str(line.plugin) for line in self._our_lines() if line.plugin != self._site.plugin]
        if others:
            raise InstallError(
                f"{self._site.plugstack} names {others[0]}, of another prefix: give that one with --prefix"
            )

    def uninstall(self, remove_line: bool = False) -> None:
        """Put the stub in the plugin's place; with ``remove_line`` take our line out instead (scripts with the option
        are refused from then on)."""
        site = self._site
        self._check_line()
        lines = self._our_lines()
        plugins = [line.plugin for line in lines] + ([site.plugin] if site.plugin.is_file() else [])
        if not plugins:
            raise InstallError(f"no line in {site.plugstack} and no {site.plugin}: nothing is installed there")
        if remove_line:
            for file in dict.fromkeys(line.file for line in lines):
                text = without_lines(file.read_text())
                self._do(f"take our line out of {file}", partial(write_config, file, text))
            return
        for plugin in dict.fromkeys(plugins):
            stub = plugin.with_name(STUB)
            if not stub.is_file():
                raise InstallError(f"{stub} is missing: run `greyhound slurm install` once, it builds it")
            self._do(f"put the stub in the place of {plugin}", partial(replace_file, stub, plugin))
        self._say("scripts with --greyhound still run, unmonitored; --remove-line ends that")
