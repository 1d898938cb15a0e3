"""The verifiable random function: the vectors of RFC 9381, and that no other value can be proved."""

from __future__ import annotations

import os

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from nacl.bindings import crypto_core_ed25519_add

from graphforget.certificates.vrf import FIELD, IDENTITY, ORDER, PROOF, SecretKey, verify

# RFC 9381, appendix B.3: secret key, public key, message, proof, value.
VECTORS = [
    (
        "9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60",
        "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a",
        "",
        "8657106690b5526245a92b003bb079ccd1a92130477671f6fc01ad16f26f723f"
        "26f8a57ccaed74ee1b190bed1f479d9727d2d0f9b005a6e456a35d4fb0daab12"
        "68a1b0db10836d9826a528ca76567805",
        "90cf1df3b703cce59e2a35b925d411164068269d7b2d29f3301c03dd757876ff"
        "66b71dda49d2de59d03450451af026798e8f81cd2e333de5cdf4f3e140fdd8ae",
    ),
    (
        "4ccd089b28ff96da9db6c346ec114e0f5b8a319f35aba624da8cf6ed4fb8a6fb",
        "3d4017c3e843895a92b70aa74d1b7ebc9c982ccf2ec4968cc0cd55f12af4660c",
        "72",
        "f3141cd382dc42909d19ec5110469e4feae18300e94f304590abdced48aed593"
        "3bf0864a62558b3ed7f2fea45c92a465301b3bbf5e3e54ddf2d935be3b67926d"
        "a3ef39226bbc355bdc9850112c8f4b02",
        "eb4440665d3891d668e7e0fcaf587f1b4bd7fbfe99d0eb2211ccec90496310eb"
        "5e33821bc613efb94db5e5b54c70a848a0bef4553a41befc57663b56373a5031",
    ),
    (
        "c5aa8df43f9f837bedb7442f31dcb7b166d38535076f094b85ce3a2e0b4458f7",
        "fc51cd8e6218a1a38da47ed00230f0580816ed13ba3303ac5deb911548908025",
        "af82",
        "9bc0f79119cc5604bf02d23b4caede71393cedfbb191434dd016d30177ccbf80"
        "96bb474e53895c362d8628ee9f9ea3c0e52c7a5c691b6c18c9979866568add7a"
        "2d41b00b05081ed0f58ee5e31b3a970e",
        "645427e5d00c62a23fb703732fa5d892940935942101e456ecca7bb217c61c45"
        "2118fec1219202a0edcf038bb6373241578be7217ba85a2687f7a0310b2df19f",
    ),
]
LOW_ORDER = [  # points whose order divides 8
    IDENTITY,
    (FIELD - 1).to_bytes(32, "little"),
    bytes(32),
    bytes(31) + b"\x80",
    bytes.fromhex("c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac037a"),
    bytes.fromhex("26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc05"),
]
KEY = SecretKey(bytes(range(32)))


@pytest.mark.parametrize(("seed", "public", "message", "proof", "value"), VECTORS)
def test_the_vectors_of_the_standard(seed: str, public: str, message: str, proof: str, value: str) -> None:
    key = SecretKey(bytes.fromhex(seed))
    assert key.public.hex() == public
    assert key.prove(bytes.fromhex(message)).hex() == proof
    assert key.value(bytes.fromhex(message)).hex() == value
    proved = verify(key.public, bytes.fromhex(message), bytes.fromhex(proof))
    assert proved is not None
    assert proved.hex() == value


@settings(max_examples=30, deadline=None)
@given(st.binary(min_size=32, max_size=32), st.binary(max_size=60), st.binary(max_size=60))
def test_a_proof_holds_for_its_message_and_key_alone(seed: bytes, message: bytes, other: bytes) -> None:
    key = SecretKey(seed)
    proof = key.prove(message)
    assert verify(key.public, message, proof) == key.value(message)
    assert (verify(key.public, other, proof) is None) == (other != message)
    assert (verify(KEY.public, message, proof) is None) == (key.public != KEY.public)


@pytest.mark.parametrize("place", range(0, PROOF, 5))
@pytest.mark.parametrize("bit", [1, 128])
def test_an_altered_proof_is_refused(place: int, bit: int) -> None:
    proof = bytearray(KEY.prove(b"subject"))
    proof[place] ^= bit
    assert verify(KEY.public, b"subject", bytes(proof)) is None


def test_there_is_one_form_of_a_proof() -> None:
    proof = KEY.prove(b"subject")
    s = int.from_bytes(proof[-32:], "little") + ORDER  # the same number modulo the order
    assert verify(KEY.public, b"subject", proof[:-32] + s.to_bytes(32, "little")) is None
    for wrong in (b"", proof[:-1], proof + b"\x00"):
        assert verify(KEY.public, b"subject", wrong) is None
        assert verify(wrong[:31], b"subject", proof) is None


@pytest.mark.parametrize("point", LOW_ORDER, ids=range(len(LOW_ORDER)))
def test_points_of_low_order_are_refused(point: bytes) -> None:
    """With such a key a proof would hold for several values."""
    proof = KEY.prove(b"subject")
    assert verify(point, b"subject", proof) is None
    assert verify(KEY.public, b"subject", point + proof[32:]) is None
    mixed = crypto_core_ed25519_add(proof[:32], LOW_ORDER[1])  # of prime order, and a part of order 2
    assert verify(KEY.public, b"subject", mixed + proof[32:]) is None


def test_points_that_are_not_canonical_are_refused() -> None:
    proof = KEY.prove(b"subject")
    for number in (FIELD, FIELD + 1, FIELD + 3, 2**255 - 1):
        point = number.to_bytes(32, "little")
        assert verify(point, b"subject", proof) is None
        assert verify(KEY.public, b"subject", point + proof[32:]) is None


def test_values_look_random() -> None:
    values = {SecretKey(os.urandom(32)).value(b"subject") for _ in range(20)}
    values |= {KEY.value(bytes([number])) for number in range(20)}
    assert len({value[:8] for value in values}) == 40
