"""Builds the C parts with a C compiler alone; everything else is in setup.cfg."""

import os
import shutil
import subprocess
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py
from setuptools.dist import Distribution

ROOT = Path(__file__).resolve().parent


class BuildWithNative(build_py):
    """Compile the hook into greyhound/_native before the package data are collected.

    The plugin's sources go along: `greyhound slurm install` builds them against the site's own Slurm.
    """

    def run(self) -> None:
        subprocess.run(["sh", "hook/build.sh"], cwd=ROOT, check=True, env=os.environ)
        sources = ROOT / "greyhound" / "_native" / "spank"
        shutil.rmtree(sources, ignore_errors=True)
        shutil.copytree(ROOT / "spank", sources)
        super().run()


class BinaryDistribution(Distribution):
    """Marks the wheel as bound to this machine's architecture."""

    def has_ext_modules(self) -> bool:
        return True


setup(cmdclass={"build_py": BuildWithNative}, distclass=BinaryDistribution)
