"""Checks a proof of absence, without the graph and without the run directory."""

from __future__ import annotations

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from graphforget.certificates.absence import AbsenceProof
from graphforget.certificates.audit_trees import ROOT_ALGORITHMS, check_text, node_number
from graphforget.certificates.document import Certificate
from graphforget.certificates.issue import roots_of
from graphforget.certificates.signing import check_signature
from graphforget.certificates.slot_tree import SlotOpening
from graphforget.errors import InputError, Mismatch
from graphforget.verification.verify import Check, Verification

UNCHECKED = (
    "that the trees hold everybody who is in the graph: 'verify' checks it with the run directory, and the signer "
    "vouches for it",
    "that no newer certificate has been issued",
    "that the graph does not have the subject under another name, or in another spelling of this one",
    "that nobody keeps a copy elsewhere",
)
WHICH_MODEL = "that the certificate is that of the model in question: a certificate from elsewhere shows it"


def verify_absence(
    proof: AbsenceProof, *, key: Ed25519PublicKey | None = None, certificate: Certificate | None = None
) -> Verification:
    """Checks that a subject is not in the graph of a certificate.

    Args:
        proof: The proof of `prove_absence`.
        key: The public key of the signer, which must have signed the certificate in the proof.
        certificate: The certificate from another source, which must be the one in the proof.

    Returns:
        What was checked, and what could not be checked. It names the subject, so it is not public.

    Raises:
        Mismatch: Something does not match. The message names the first such thing.
        InputError: Neither a key nor a certificate is given, or the subject is no text in Unicode.
    """
    if key is None and certificate is None:
        raise InputError(
            "a proof is checked with the signer's public key or with a certificate from elsewhere, give one"
        )
    for given, kind, label in (
        (proof, AbsenceProof, "the proof"),
        (key, Ed25519PublicKey | None, "the key"),
        (certificate, Certificate | None, "the certificate"),
    ):
        if not isinstance(given, kind):
            raise InputError(f"{label} is a {type(given).__name__}, an object as its own reader gives it is needed")
    check_text(proof.subject)
    checks = []
    if key is not None:
        checks.append(Check("signature", f"signed by {check_signature(proof.certificate, key)[:16]}..."))
    if certificate is not None:
        if certificate.digest != proof.certificate.digest:
            raise Mismatch("the certificate in the proof is another one than the certificate that was given")
        checks.append(Check("certificate", "the one that was given"))
    checks += [Check("position", _check_opening(proof)), Check("absence", _sentence(proof))]
    return Verification(tuple(checks), UNCHECKED if certificate is not None else (WHICH_MODEL, *UNCHECKED))


def _check_opening(proof: AbsenceProof) -> str:
    """Raises `Mismatch` unless the opening leads from an empty place of this subject to the root that was certified."""
    roots = roots_of(proof.certificate)
    if not roots:
        raise Mismatch("the certificate in the proof has no root from which absence can be shown")
    expected = "subjects" if "subjects" in roots else "slots"  # a number shows nothing where people have names
    if proof.tree != expected:
        raise Mismatch(f"the proof is about the tree of {proof.tree}, and the certificate is for the one of {expected}")
    if proof.certificate.algorithms.get(expected) != ROOT_ALGORITHMS[expected]:
        raise Mismatch("the certificate's root is of an algorithm that this version does not know")
    if isinstance(proof.opening, SlotOpening):
        try:
            root = proof.opening.root(node_number(proof.subject))
        except InputError as error:
            raise Mismatch(str(error)) from error
        position = f"the slot of node {proof.subject}"
    else:
        root = proof.opening.root(proof.subject)
        position = "the one that the random function gives for this subject"
    if root is None:
        raise Mismatch("the proof is not one for this subject")
    if root.hex() != roots[expected]:
        raise Mismatch("the proof does not lead to the root in the certificate")
    return position


def _sentence(proof: AbsenceProof) -> str:
    """The result. Control characters of somebody else's document do not reach the terminal."""
    made, number = proof.certificate.made, proof.certificate.id
    return f"{proof.subject!r} is not in the graph of certificate {number!r} of {made!r}"
