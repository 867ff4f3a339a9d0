"""The one exception family of the sandbox; every message names what is wrong and the mend."""


class SandboxError(Exception):
    """Something about the sandbox is wrong; the text is meant for the user."""


class DaemonError(SandboxError):
    """A daemon ended or did not become ready; the text ends with the tail of its log."""
