"""Builds the stand-in once before its tests."""

from tests.standin.build import build_standin


def pytest_configure() -> None:
    """Before collection: the test modules load the libraries when they are imported."""
    build_standin()
