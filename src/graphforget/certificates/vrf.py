"""A verifiable random function: ECVRF-EDWARDS25519-SHA512-TAI of RFC 9381, on the curve arithmetic of libsodium.

Whoever has the secret key can compute the function and prove its value at one input; nobody else can compute it at any
other input. There is one value that can be proved for an input and a public key.
"""

from __future__ import annotations

import hmac
from hashlib import sha512

from nacl.bindings import (
    crypto_core_ed25519_add,
    crypto_core_ed25519_is_valid_point,
    crypto_core_ed25519_scalar_add,
    crypto_core_ed25519_scalar_mul,
    crypto_core_ed25519_scalar_reduce,
    crypto_core_ed25519_sub,
    crypto_scalarmult_ed25519_base_noclamp,
    crypto_scalarmult_ed25519_noclamp,
)
from nacl.exceptions import CryptoError

SUITE = b"\x03"
POINT, CHALLENGE, SCALAR = 32, 16, 32  # bytes
PROOF = POINT + CHALLENGE + SCALAR
FIELD = 2**255 - 19
ORDER = 2**252 + 27742317777372353535851937790883648493
COFACTOR = 8
IDENTITY = bytes([1, *bytes(31)])


class SecretKey:
    """A secret key of 32 random bytes, with what follows from it."""

    def __init__(self, seed: bytes) -> None:
        expanded = sha512(seed).digest()
        low, high = expanded[0] & 248, expanded[31] & 63 | 64  # as in RFC 8032
        self._scalar = bytes([low]) + expanded[1:31] + bytes([high])
        self._reduced = crypto_core_ed25519_scalar_reduce(self._scalar + bytes(SCALAR))
        self._times_cofactor = crypto_core_ed25519_scalar_mul(self._reduced, bytes([COFACTOR, *bytes(31)]))
        self._nonce_key = expanded[32:]
        self.public = crypto_scalarmult_ed25519_base_noclamp(self._scalar)

    def value(self, message: bytes) -> bytes:
        """The function's value, 64 bytes."""
        return _value(crypto_scalarmult_ed25519_noclamp(self._times_cofactor, _encode_to_curve(self.public, message)))

    def prove(self, message: bytes) -> bytes:
        """The proof from which `verify` gets the value, 80 bytes."""
        point = _encode_to_curve(self.public, message)
        gamma = crypto_scalarmult_ed25519_noclamp(self._scalar, point)
        nonce = crypto_core_ed25519_scalar_reduce(sha512(self._nonce_key + point).digest())
        u, v = crypto_scalarmult_ed25519_base_noclamp(nonce), crypto_scalarmult_ed25519_noclamp(nonce, point)
        challenge = _challenge(self.public, point, gamma, u, v)
        product = crypto_core_ed25519_scalar_mul(_padded(challenge), self._reduced)
        return gamma + challenge + crypto_core_ed25519_scalar_add(nonce, product)


def verify(public: bytes, message: bytes, proof: bytes) -> bytes | None:
    """The function's value at `message` if the proof is right, otherwise None."""
    if len(public) != POINT or len(proof) != PROOF:
        return None
    gamma, challenge, s = proof[:POINT], proof[POINT:-SCALAR], proof[-SCALAR:]
    points_are_valid = all(map(crypto_core_ed25519_is_valid_point, (public, gamma)))  # canonical, of prime order
    if not points_are_valid or int.from_bytes(s, "little") >= ORDER:
        return None
    point = _encode_to_curve(public, message)
    try:
        u = crypto_core_ed25519_sub(
            crypto_scalarmult_ed25519_base_noclamp(s), crypto_scalarmult_ed25519_noclamp(_padded(challenge), public)
        )
        v = crypto_core_ed25519_sub(
            crypto_scalarmult_ed25519_noclamp(s, point), crypto_scalarmult_ed25519_noclamp(_padded(challenge), gamma)
        )
    except CryptoError:  # a scalar is 0
        return None
    if not hmac.compare_digest(challenge, _challenge(public, point, gamma, u, v)):
        return None
    return _value(_times_cofactor(gamma))


def _encode_to_curve(salt: bytes, message: bytes) -> bytes:
    """A point of prime order that follows from the message, by trying hashes until one is a point."""
    for counter in range(256):
        hashed = sha512(SUITE + b"\x01" + salt + message + bytes([counter, 0])).digest()[:POINT]
        if int.from_bytes(hashed, "little") % 2**255 >= FIELD:
            continue
        try:
            point = _times_cofactor(hashed)
        except CryptoError:  # it is on no point
            continue
        if point != IDENTITY:
            return point
    raise AssertionError("256 hashes in a row are no points")  # once in 2^256 messages


def _times_cofactor(point: bytes) -> bytes:
    for _ in range(COFACTOR.bit_length() - 1):
        point = crypto_core_ed25519_add(point, point)
    return point


def _challenge(*points: bytes) -> bytes:
    return sha512(SUITE + b"\x02" + b"".join(points) + b"\x00").digest()[:CHALLENGE]


def _value(point: bytes) -> bytes:
    return sha512(SUITE + b"\x03" + point + b"\x00").digest()


def _padded(challenge: bytes) -> bytes:
    return challenge + bytes(SCALAR - CHALLENGE)
