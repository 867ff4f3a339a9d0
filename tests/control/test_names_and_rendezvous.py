"""Names carry everything that tells two steps apart; ports and passwords follow from the token alone."""

import hashlib
import hmac

import pytest
from hypothesis import given
from hypothesis import strategies as st

from greyhound.control import rendezvous
from greyhound.control.names import StepName, bus_prefix, parse_step_dir, step_dir

words = st.from_regex(r"[A-Za-z0-9_+-]{1,12}", fullmatch=True)


@given(st.integers(0, 2**31), words, words, st.integers(0, 99), st.integers(0, 4095))
def test_step_dir_round_trip(uid, job, step, restart, index):
    name = StepName(job, step, restart)
    assert parse_step_dir(step_dir(uid, name, index)) == (uid, name, index)
    assert bus_prefix(uid, name) == f"gh:{uid}.{job}.{step}.{restart}:"


@given(st.binary(min_size=32, max_size=32))
def test_sixteen_ports_and_passwords(token):
    ports = [rendezvous.port(token, k) for k in range(rendezvous.TRIES)]
    assert all(20000 <= port < 32000 for port in ports)
    passwords = {rendezvous.password(token, k) for k in range(rendezvous.TRIES)}
    assert len(passwords) == 16
    kinds = (rendezvous.password, rendezvous.greeting, rendezvous.identity)
    assert len({secret(token, k) for secret in kinds for k in range(rendezvous.TRIES)}) == 48
    assert rendezvous.token_bytes(token.hex()) == token


def test_known_values():
    token = bytes(range(32))
    assert rendezvous.port(token, 3) == 20000 + int(hmac.new(token, b"\3", hashlib.sha256).hexdigest(), 16) % 12000
    assert rendezvous.password(token, 3) == hmac.new(token, b"pw\3", hashlib.sha256).hexdigest()


@pytest.mark.parametrize("text", ["", "00", "zz" * 32, "0" * 63, "00" * 33])
def test_bad_token_is_refused_without_showing_it(text):
    with pytest.raises(rendezvous.TokenError) as error:
        rendezvous.token_bytes(text)
    assert not text or text not in str(error.value)
