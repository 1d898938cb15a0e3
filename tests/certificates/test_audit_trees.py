"""The trees from which absence is shown: openings hold for whom they are, cannot be forged, and tell of nobody else."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterator
from hashlib import sha256
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from graphforget.certificates.audit_trees import node_number
from graphforget.certificates.keyed_hashes import empty_hash
from graphforget.certificates.slot_tree import SlotOpening, SlotTree
from graphforget.certificates.subject_tree import CELL_BITS, SubjectOpening, SubjectTree
from graphforget.certificates.vrf import SecretKey
from graphforget.errors import InputError, Mismatch
from graphforget.graph.record_tree import HASH, HEIGHT, RecordTree
from graphforget.privacy.salt import new_salt

NAMES = [f"person-{number}" for number in range(80)]
GONE = ["person-3", "person-40"]


def records(content: dict[int, bytes]) -> RecordTree:
    numbers = sorted(content)
    leaves = np.frombuffer(b"".join(sha256(content[number]).digest() for number in numbers), dtype=np.uint8)
    return RecordTree.of(np.array(numbers, dtype=np.int64), leaves.reshape(-1, HASH))


@pytest.fixture(scope="module")
def tree() -> SubjectTree:
    """All but `GONE`, who were there."""
    return SubjectTree.of(NAMES, new_salt()).without(GONE)


def slots_after(numbers: range, gone: int) -> tuple[SlotTree, RecordTree]:
    before = records({number: str(number).encode() for number in numbers})
    after = before.updated(np.array([gone]), np.zeros((1, HASH), dtype=np.uint8))
    return SlotTree.of(before, new_salt()).updated(before, after), after


# -- what openings show ------------------------------------------------------------------------------------------------


def test_who_is_absent_can_be_opened_and_who_is_present_cannot(tree: SubjectTree) -> None:
    for subject in (*GONE, "person-80", "", "Pérson-3", "x" * 500):
        opening = tree.opening(subject)
        assert opening is not None
        assert opening.root(subject) == tree.root
    for subject in NAMES:
        assert (tree.opening(subject) is None) == (subject not in GONE)


@settings(max_examples=15, deadline=None)
@given(st.data())
def test_subjects_who_go_one_after_the_other_leave_the_tree_of_the_others(data: st.DataObject) -> None:
    names = NAMES[: data.draw(st.integers(1, 40))]
    first = tree = SubjectTree.of(names, new_salt())
    root, roots, left = tree.root, {tree.root}, list(names)
    for _ in range(data.draw(st.integers(1, 4))):
        gone = data.draw(st.lists(st.sampled_from(left), unique=True)) if left else []
        left = [name for name in left if name not in gone]
        tree = tree.without(gone)
        assert tree.root not in roots
        roots.add(tree.root)
        rebuilt, again = first.rebuilt(left), tree.rebuilt(left)
        assert rebuilt is not None
        assert again is not None
        assert rebuilt.tree.root == tree.tree.root
        assert again.root == tree.root
    assert first.root == root
    opened = [tree.opening(name) for name in names]
    assert [name for name, opening in zip(names, opened, strict=True) if opening is None] == left


def test_somebody_who_never_had_a_place_does_not_fit(tree: SubjectTree) -> None:
    assert tree.rebuilt(["person-80"]) is None
    slots, after = slots_after(range(20), 7)
    assert slots.rebuilt(records({20: b"another"})) is None
    rebuilt = slots.rebuilt(after)
    assert rebuilt is not None
    assert rebuilt.root == slots.root


@pytest.mark.parametrize("subjects", [["person-80"], [GONE[0]], ["person-5", "person-5"], ["person-5", GONE[1]]])
def test_who_is_not_there_cannot_go(subjects: list[str], tree: SubjectTree) -> None:
    with pytest.raises(Mismatch, match="lack somebody who is in the graph"):
        tree.without(subjects)


@pytest.mark.parametrize("number", [6, 7])
def test_slots_have_a_salt_if_and_only_if_they_have_a_record(number: int) -> None:
    slots, after = slots_after(range(20), 7)
    salts = slots.salts.array().copy()
    assert SlotTree.again(slots.key, slots.salt, slots.tree.numbers, salts, after) is not None
    salts[number] = 0 if number == 6 else 1
    assert SlotTree.again(slots.key, slots.salt, slots.tree.numbers, salts, after) is None


def test_a_number_is_shown_to_be_gone_or_never_given() -> None:
    slots, _ = slots_after(range(300), 17)
    for number in (17, 300, 5000, 2**63 - 1):
        opening = slots.opening(number)
        assert opening is not None
        assert opening.root(number) == slots.root
    assert slots.opening(16) is None
    for number in (16, 18, 17 + 2**64, -1):
        other = slots.opening(17)
        assert other is not None
        assert other.root(number) != slots.root


@pytest.mark.parametrize("subject", ["", "x", "-1", "+5", "05", " 5", "5.0", "٣", str(2**63), "9" * 30])
def test_a_node_number_has_one_form(subject: str) -> None:
    assert node_number("0") == 0
    assert node_number(str(2**63 - 1)) == 2**63 - 1
    with pytest.raises(InputError, match="give a node number from 0"):
        node_number(subject)


# -- salts -------------------------------------------------------------------------------------------------------------


def test_roots_are_new_where_nothing_changes(tree: SubjectTree) -> None:
    slots, after = slots_after(range(20), 7)
    for one, other, who in ((tree, tree.without([]), GONE[0]), (slots, slots.updated(after, after), 7)):
        assert one.tree.root == other.tree.root
        openings = [version.opening(who) for version in (one, other)]  # type: ignore[arg-type]
        assert [opening and opening.root(who) for opening in openings] == [one.root, other.root]  # type: ignore[arg-type]
        assert one.root != other.root


def test_salts_are_new_where_a_record_changes_and_overwritten_where_it_goes() -> None:
    before = records({number: str(number).encode() for number in range(40)})
    slots = SlotTree.of(before, new_salt())
    old = slots.salts.array().copy()
    leaves = np.stack([np.zeros(HASH, dtype=np.uint8), np.ones(HASH, dtype=np.uint8)])
    after = before.updated(np.array([5, 9]), leaves)
    new = slots.updated(before, after).salts.array().copy()
    assert not new[5].any()
    assert (new != old).any(axis=1).nonzero()[0].tolist() == [5, 9]
    assert len(np.unique(old, axis=0)) == 40
    assert old.tobytes().find(old[5].tobytes()) >= 0
    assert new.tobytes().find(old[5].tobytes()) < 0


def test_a_deletion_hashes_what_it_touches(tree: SubjectTree, monkeypatch: pytest.MonkeyPatch) -> None:
    evaluated: list[bytes] = []
    real = SecretKey.value

    def counted(key: SecretKey, message: bytes) -> bytes:
        evaluated.append(message)
        return real(key, message)

    monkeypatch.setattr(SecretKey, "value", counted)
    tree.without(["person-9"])
    assert evaluated == [b"person-9"]


# -- forging -----------------------------------------------------------------------------------------------------------


def altered(opening: SubjectOpening, name: str, value: Any) -> SubjectOpening:
    changes: dict[str, Any] = {name: value}
    return dataclasses.replace(opening, **changes)


def forged(opening: SubjectOpening, other: SubjectOpening) -> Iterator[SubjectOpening]:
    """Openings with one part altered, cut, lengthened, or taken from another tree."""
    for name in ("salt", "public_key", "proof", "seed", "cell", "path"):
        if getattr(opening, name) != getattr(other, name):
            yield altered(opening, name, getattr(other, name))
    for name in ("salt", "public_key", "proof", "seed"):
        value = getattr(opening, name)
        for wrong in (value[:-1], value + b"\x00", b"", bytes([value[0] ^ 1]) + value[1:], bytes(len(value))):
            yield altered(opening, name, wrong)
    for name in ("cell", "path"):
        parts = getattr(opening, name)
        for wrong in (parts[1:], parts[:-1], (*parts, parts[-1]), parts[::-1], (), (b"", *parts[1:])):
            yield altered(opening, name, wrong)
        for place in range(0, len(parts), 7):
            flipped = bytes([parts[place][0] ^ 1]) + parts[place][1:]
            yield altered(opening, name, (*parts[:place], flipped, *parts[place + 1 :]))
    for height in (-1, 0, opening.height - 1, opening.height + 1, 6, 10**6):
        yield dataclasses.replace(opening, height=height)


def test_altered_openings_do_not_lead_to_the_root(tree: SubjectTree) -> None:
    opening, other = tree.opening(GONE[0]), SubjectTree.of(NAMES, new_salt()).without(GONE).opening(GONE[0])
    assert opening is not None
    assert other is not None
    assert other.root(GONE[0]) != tree.root  # another run's proof
    tried = list(forged(opening, other))
    assert len(tried) > 30
    for wrong in tried:
        assert wrong == opening or wrong.root(GONE[0]) != tree.root, wrong


def test_the_opening_of_one_subject_is_not_one_of_another(tree: SubjectTree) -> None:
    openings = {subject: tree.opening(subject) for subject in (*GONE, "person-80", "person-81")}
    for one, other in itertools.permutations(openings, 2):
        opening, mixed = openings[one], openings[other]
        assert opening is not None
        assert mixed is not None
        assert opening.root(other) is None
        if {one, other} & set(GONE):  # others may be in one empty subtree
            assert dataclasses.replace(opening, proof=mixed.proof).root(other) != tree.root


def test_presence_is_not_shown_as_absence(tree: SubjectTree) -> None:
    """With everything that the operator has: the position is proved, and the hash there is of nobody's absence."""
    present, before = "person-8", tree.without(["person-8"]).opening("person-8")
    assert before is not None
    assert before.root(present) not in (None, tree.root)  # a proof of a later certificate
    proof = tree.secret.prove(present.encode())
    for subject in (*GONE, "person-80"):
        opening = tree.opening(subject)
        assert opening is not None
        assert dataclasses.replace(opening, proof=proof).root(present) != tree.root
    for depth in range(CELL_BITS + 1):  # ended early, as if a subtree were empty, with its own hash as the seed
        for seed in (before.cell[depth - 1], before.seed, tree.tree.root):
            early = dataclasses.replace(before, cell=before.cell[depth:], seed=seed)
            assert early.root(present) != tree.root
    for level in range(len(before.path) + 1):
        early = dataclasses.replace(before, cell=(), path=before.path[level:])
        assert early.root(present) != tree.root


def test_altered_slots_do_not_lead_to_the_root() -> None:
    slots, _ = slots_after(range(300), 17)
    opening, other = slots.opening(17), slots_after(range(300), 17)[0].opening(17)
    assert opening is not None
    assert other is not None
    assert other.root(17) != slots.root
    salt, seed, path = opening.salt, opening.seed, opening.path
    tried = [SlotOpening(other.salt, seed, path), SlotOpening(salt, other.seed, path)]
    tried += [SlotOpening(salt, seed, other.path), SlotOpening(salt, seed, (*path, path[-1]))]
    tried += [SlotOpening(salt, wrong, path) for wrong in (seed[:-1], b"")]
    tried += [SlotOpening(wrong, seed, path) for wrong in (salt[:-1], b"", salt + b"\x00")]
    tried += [SlotOpening(salt, seed, path[cut:]) for cut in range(1, HEIGHT + 1)]
    for level, part in enumerate(path):
        flipped = bytes([part[0] ^ 1]) + part[1:]
        tried.append(SlotOpening(salt, seed, (*path[:level], flipped, *path[level + 1 :])))
    assert all(wrong.root(17) != slots.root for wrong in tried)


# -- nothing of anybody else -------------------------------------------------------------------------------------------


def shape(opening: SubjectOpening | SlotOpening) -> dict[str, object]:
    """Lengths of all parts, and what is no hash."""
    sizes = {name: [len(part) for part in value] for name, value in vars(opening).items() if isinstance(value, tuple)}
    sizes |= {name: [len(value)] for name, value in vars(opening).items() if isinstance(value, bytes)}
    return sizes | {name: value for name, value in vars(opening).items() if isinstance(value, int)}


def test_openings_have_one_shape_whoever_else_is_there() -> None:
    shapes = []
    for others in (NAMES, [f"somebody-{number}" for number in range(90)], [*NAMES, *map(str, range(40))]):
        tree = SubjectTree.of([*others, "asked"], new_salt())
        for gone in (["asked"], ["asked", *others[:50]], ["asked", *others]):
            opening = tree.without(gone).opening("asked")
            assert opening is not None
            shapes.append(shape(opening))
    assert all(one == shapes[0] for one in shapes)


def test_openings_do_not_change_their_shape_when_others_go(tree: SubjectTree) -> None:
    for subject in (GONE[0], "person-80", "person-81"):
        one, other = tree.opening(subject), tree.without([name for name in NAMES if name not in GONE]).opening(subject)
        assert one is not None
        assert other is not None
        assert shape(one) == shape(other)


def pieces(opening: SubjectOpening | SlotOpening) -> set[bytes]:
    """All hashes in an opening."""
    parts = (*opening.path, *(opening.cell if isinstance(opening, SubjectOpening) else ()))
    return {part[start : start + HASH] for part in parts for start in range(0, len(part), HASH)}


def test_the_hashes_of_an_opening_cannot_be_tested_for_anybody(tree: SubjectTree) -> None:
    """Whoever has the opening cannot compute any of its hashes from a name, a record or the seed that is shown."""
    opening = tree.opening(GONE[0])
    assert opening is not None
    shown = pieces(opening)
    assert len(shown) == CELL_BITS + 15 * opening.height  # no two are alike: empty subtrees are not recognised
    secrets = (opening.seed, opening.public_key, opening.proof, *shown)
    for name in (*NAMES, "person-80"):
        for secret in (b"", *secrets):
            for guess in (secret + name.encode(), name.encode() + secret):
                assert sha256(guess).digest() not in shown
                assert empty_hash(guess) not in shown
    assert not any(empty_hash(secret) in shown for secret in secrets)


def test_the_slots_beside_an_opened_one_cannot_be_tested_against_records() -> None:
    slots, after = slots_after(range(20), 7)
    opening = slots.opening(7)
    assert opening is not None
    shown = pieces(opening)
    assert len(shown) == 15 * HEIGHT
    for number in range(20):
        leaf = after.leaves(np.array([number]))[0].tobytes()
        for secret in (b"", opening.seed, *shown):
            assert leaf not in shown
            assert sha256(b"graphforget-slot" + secret + leaf).digest() not in shown
    assert not any(empty_hash(secret) in shown for secret in (opening.seed, *shown))
