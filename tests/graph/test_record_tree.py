"""The Merkle tree over numbers: its root is that of a tree computed by hand, after any sequence of updates."""

from __future__ import annotations

from hashlib import sha256

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from graphforget.graph.record_tree import ABSENT, HASH, HEIGHT, RecordTree, check_path

NUMBERS = st.one_of(st.integers(0, 40), st.integers(0, 5000), st.integers(0, 2**63 - 1))
Content = dict[int, bytes]


def leaf(value: int) -> bytes:
    return sha256(str(value).encode()).digest()


def by_hand(content: Content, *, level: int = HEIGHT, prefix: int = 0) -> bytes:
    """The root by its definition, one node after the other."""
    if level == 0:
        return content.get(prefix, ABSENT)
    within = {number: value for number, value in content.items() if number >> (4 * level) == prefix}
    children = [by_hand(within, level=level - 1, prefix=16 * prefix + child) for child in range(16)] if within else []
    if not within:
        children = [by_hand({}, level=level - 1)] * 16
    return sha256(b"graphforget-n" + level.to_bytes(3, "little") + b"".join(children)).digest()


def arrays(content: Content) -> tuple[np.ndarray, np.ndarray]:
    numbers = sorted(content)
    leaves = np.frombuffer(b"".join(content[number] for number in numbers), dtype=np.uint8)
    return np.array(numbers, dtype=np.int64), leaves.reshape(-1, HASH)


def tree_of(content: Content) -> RecordTree:
    return RecordTree.of(*arrays(content))


@settings(max_examples=40, deadline=None)
@given(st.dictionaries(NUMBERS, st.integers(0, 9).map(leaf), max_size=12))
def test_the_root_is_the_one_computed_by_hand(content: Content) -> None:
    assert tree_of(content).root == by_hand(content)


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_updates_give_the_tree_of_what_is_left_and_old_versions_stay(data: st.DataObject) -> None:
    content = data.draw(st.dictionaries(NUMBERS, st.integers(0, 9).map(leaf), min_size=1, max_size=20))
    numbers = sorted(content)
    versions = [(dict(content), tree_of(content))]
    for _ in range(data.draw(st.integers(1, 6))):
        changed = data.draw(st.lists(st.sampled_from(numbers), unique=True, max_size=5))
        values = {number: data.draw(st.sampled_from([ABSENT, leaf(20), leaf(21)])) for number in sorted(changed)}
        before, tree = versions[data.draw(st.integers(0, len(versions) - 1))]  # also of a version that is not the last
        after = {number: value for number, value in (before | values).items() if value != ABSENT}
        versions.append((after, tree.updated(*arrays(values))))
    for held, tree in data.draw(st.permutations(versions)):
        assert tree.root == tree_of(held).root
        for number in numbers[:3]:
            assert check_path(tree.root, number, held.get(number, ABSENT), tree.path(number))
    (first, one), (last, other) = versions[0], versions[-1]
    differ = [number for number in numbers if first.get(number) != last.get(number)]
    assert one.differences(other).tolist() == differ
    assert tree_of(last).differences(one).tolist() == differ


def test_an_update_hashes_a_path_and_not_the_tree(monkeypatch: pytest.MonkeyPatch) -> None:
    from graphforget.graph import record_tree

    tree = tree_of({number: leaf(number) for number in range(5000)})
    hashed: list[int] = []
    real = record_tree._node_hashes

    def counted(level: int, children: np.ndarray) -> np.ndarray:
        hashed.append(len(children))
        return real(level, children)

    monkeypatch.setattr(record_tree, "_node_hashes", counted)
    tree.updated(np.array([17, 4000]), np.zeros((2, HASH), dtype=np.uint8))
    assert sum(hashed) <= 2 * HEIGHT


def test_a_number_that_was_never_there_is_refused() -> None:
    tree = tree_of({1: leaf(1), 2**63 - 1: leaf(2)})
    for number in (0, 2, 2**63 - 2):
        with pytest.raises(ValueError, match="takes no new numbers"):
            tree.updated(np.array([1, number]), np.zeros((2, HASH), dtype=np.uint8))


def test_paths_show_one_leaf_and_nothing_else() -> None:
    content = {number: leaf(number) for number in (0, 3, 17, 300, 2**50)}
    tree = tree_of(content)
    for number in (*content, 4, 2**62):
        value, path = content.get(number, ABSENT), tree.path(number)
        assert check_path(tree.root, number, value, path)
        assert not check_path(tree.root, number, leaf(-1), path)
        assert not check_path(tree.root, number ^ 1, leaf(number), path)
        assert not check_path(tree.root, number + 2**64, value, path)
        assert not check_path(tree.root, number, value, path[:-1])
        assert not check_path(tree.root, number, value, (*path[:-1], path[-1][:-1]))
        for level in range(HEIGHT):
            forged = bytes([path[level][0] ^ 1]) + path[level][1:]
            assert not check_path(tree.root, number, value, (*path[:level], forged, *path[level + 1 :]))


def test_an_inner_node_is_not_shown_as_a_leaf() -> None:
    """The level is hashed with the children, so a shorter path does not open another number."""
    tree = tree_of({16: leaf(1), 17: leaf(2)})
    node = tree.hashes[1].array()[0].tobytes()
    assert not check_path(tree.root, 1, node, tree.path(16, level=1))
    assert check_path(tree.root, 16, node, tree.path(16, level=1), level=1)
