"""How the nodes of a step find their master: ports and passwords drawn from the step's token.

The head tries the 16 ports in order and keeps the first free one; the others try the same list. A server that doesn't
show the greeting is not even sent the password; one without the identity isn't ours either (docs/interfaces.md 5).
"""

import hmac
import secrets
from dataclasses import dataclass, field

TRIES = 16
FIRST_PORT = 20000
PORTS = 12000
TOKEN_BYTES = 32
USER = "greyhound"


class TokenError(ValueError):
    """The token isn't 64 hex digits."""


def new_token() -> str:
    """A fresh token as 64 hex digits."""
    return secrets.token_hex(TOKEN_BYTES)


def token_bytes(text: str) -> bytes:
    """The token's 32 bytes; TokenError (which never shows the text, it is a secret) if it is malformed."""
    try:
        token = bytes.fromhex(text)
    except ValueError:
        token = b""
    if len(token) != TOKEN_BYTES:
        raise TokenError(f"GREYHOUND_TOKEN must be {2 * TOKEN_BYTES} hex digits (got {len(text)} characters)")
    return token


def _hmac(token: bytes, message: bytes) -> bytes:
    return hmac.digest(token, message, "sha256")


def port(token: bytes, k: int) -> int:
    """The k-th port to try, 20000..31999."""
    return FIRST_PORT + int.from_bytes(_hmac(token, bytes([k])), "big") % PORTS


def password(token: bytes, k: int) -> str:
    """The password of a server on the k-th port, 64 hex digits."""
    return _hmac(token, b"pw" + bytes([k])).hex()


def greeting(token: bytes, k: int) -> str:
    """What a server on the k-th port shows to everybody, so that it is trusted with the password; 64 hex digits."""
    return _hmac(token, b"greeting" + bytes([k])).hex()


def identity(token: bytes, k: int) -> str:
    """What a server on the k-th port shows to those who know the password, 64 hex digits."""
    return _hmac(token, b"identity" + bytes([k])).hex()


@dataclass(frozen=True)
class Candidate:
    """One port of the list and the secrets that belong to it alone."""

    k: int
    port: int
    password: str = field(repr=False)
    greeting: str = field(repr=False)
    identity: str = field(repr=False)


def candidate(token: bytes, k: int) -> Candidate:
    """The k-th."""
    return Candidate(k, port(token, k), password(token, k), greeting(token, k), identity(token, k))
