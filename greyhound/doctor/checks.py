"""All checks of this host, in the order in which their mends make sense."""

from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path

from greyhound.config import Settings, from_environment, native_dir
from greyhound.doctor import host_checks, slurm_checks
from greyhound.doctor.finding import Check, Finding, Level
from greyhound.slurm.client import SlurmError

NATIVE_IN_PREFIX = "lib/greyhound"
PLUGIN_CHECKS = (
    slurm_checks.check_line,
    slurm_checks.check_release,
    slurm_checks.check_option,
    slurm_checks.check_python,
)


def _settings(arguments: Mapping[str, str]) -> tuple[Settings, Path]:
    """What jobs here are run with: the site's plugstack arguments over file and defaults."""
    settings, _ = from_environment({})
    native = Path(arguments["native"]) if "native" in arguments else native_dir()
    if "prefix" in arguments and "native" not in arguments:
        native = Path(arguments["prefix"]) / NATIVE_IN_PREFIX
    known = {key: arguments[key] for key in ("record_dir", "redis_server") if key in arguments}
    return Settings(**{**vars(settings), **known}), native


def _guarded(name: str, check: Check) -> Iterator[Finding]:
    """Slurm that doesn't answer costs its own line, not the others."""
    try:
        yield from check()
    except SlurmError as error:
        yield Finding(name, Level.FAIL, str(error), "run this where Slurm's commands work")


def examine(environment: Mapping[str, str] | None = None, with_slurm: bool = True) -> Iterator[Finding]:
    """Findings one after the other; without Slurm (`greyhound launch` alone) its checks are left out."""
    host = slurm_checks.SlurmHost(environment)
    arguments: Mapping[str, str] = {}
    if with_slurm:
        first = list(slurm_checks.check_controller(host))
        yield from first
        if all(finding.level is Level.OK for finding in first):
            for check in PLUGIN_CHECKS:
                yield from _guarded("plugin", partial(check, host))
            for check in (slurm_checks.check_client, slurm_checks.check_clock, slurm_checks.check_accounting):
                yield from _guarded("slurm", partial(check, host))
            lines = host.lines()
            arguments = lines[0].arguments if lines else {}
    settings, native = _settings(arguments)
    yield from host_checks.check_hook(native)
    yield from host_checks.check_parts(native, native_dir())
    yield from host_checks.check_redis(settings.redis_server)
    yield from host_checks.check_shared_memory()
    yield from host_checks.check_records(settings.record_path, is_shared="record_dir" in arguments)
    yield from host_checks.check_gpus()
