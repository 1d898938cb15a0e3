"""Data that a module carries beside its parameters: every carrier is named, and ordinary modules carry none."""

from __future__ import annotations

import array
import collections
import copy
import dataclasses
import enum
import functools
import itertools
import random
import types
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import scipy.sparse
import torch
from sklearn.preprocessing import StandardScaler
from sklearn.tree import DecisionTreeClassifier
from torch import Tensor, nn
from torch.nn import functional
from torch_geometric.data import Data
from torch_geometric.nn import GATv2Conv, GCNConv, GINConv, MessagePassing
from torch_geometric.nn import models as pyg

import graphforget as gf
from cases import CLASSES, COLUMNS, OwnGCN, make, random_graph
from graphforget.models.base import Linear
from graphforget.models.built_in import is_built_in
from graphforget.models.captured import MAX_OBJECTS, first_captured_value, reachable_digest
from graphforget.models.fixed import SGC
from graphforget.models.gcn import GCN
from graphforget.models.inspection import data_carriers
from graphforget.models.registry import is_affine, reach_is_proven

NUMBERS = torch.arange(4.0) / 7
MEAN_OF_THE_DATA = torch.full((COLUMNS,), 0.25)
TABLE_OF_THE_DATA = [0.123456, 0.654321]
STEPS = 0


class Holder:
    def __init__(self, value: object) -> None:
        self.value = value

    def __call__(self, x: Tensor) -> Tensor:
        return x

    def method(self, x: Tensor) -> Tensor:
        return x


class Slotted:
    __slots__ = ("empty", "value")

    def __init__(self, value: object) -> None:
        self.value = value


class ClassHolder:
    value = NUMBERS.tolist()


@dataclasses.dataclass
class Settings:
    value: object
    rate: float = 0.5


class Pair(NamedTuple):
    left: object
    right: object


class Words(list):
    pass


class Hides(list):
    def __iter__(self) -> Any:
        return iter(())


class Unreadable(float):
    def __repr__(self) -> str:
        raise RuntimeError


class Tagged(str):
    pass


class Colour(enum.Enum):
    RED = 1
    BLUE = "blue"


def closure_over(value: object) -> Callable[..., Any]:
    return lambda x: x if value is None else x.relu()


def default_of(value: object) -> Callable[[Tensor], Tensor]:
    def function(x: Tensor, *, other: object = value) -> Tensor:
        return x

    return function


def attribute_of(value: object) -> Callable[[Tensor], Tensor]:
    def function(x: Tensor) -> Tensor:
        return x

    function.value = value  # type: ignore[attr-defined]
    return function


def uses_a_global(x: Tensor) -> Tensor:
    return x - MEAN_OF_THE_DATA


def calls_what_uses_a_global(x: Tensor) -> Tensor:
    return uses_a_global(x)


@functools.cache
def cached(number: int) -> int:
    return number


def cyclic(value: object) -> list[object]:
    items: list[object] = [1]
    items.append([items, value])
    return items


def tagged(value: object) -> Words:
    words = Words()
    words.value = value  # type: ignore[attr-defined]
    return words


def tagged_text(value: object) -> Tagged:
    text = Tagged("a")
    text.value = value  # type: ignore[attr-defined]
    return text


def user_module(value: object) -> Callable[[], object]:
    """A function that reads an attribute of a module of the user's own."""
    other = types.ModuleType("of_the_users_own")
    other.table = value  # type: ignore[attr-defined]
    function: Callable[[], object] = eval("lambda: other.table", {"other": other})
    return function


ARRAY = NUMBERS.numpy()
LIVE = {"array": ARRAY, "holder": Holder(ARRAY)}
CARRIERS: dict[str, Callable[[], object]] = {
    "floats": lambda: NUMBERS.tolist(),
    "many round floats": lambda: [0.1, 0.2, 0.3, 0.4, 0.5],
    "exact floats": lambda: (0.12345,),
    "nested floats": lambda: {"a": [[0.12345], [0.5]]},
    "many ints": lambda: list(range(65)),
    "many nested ints": lambda: [list(range(30)), {"a": tuple(range(40))}],
    "set of ints": lambda: set(range(65)),
    "dict of ints": lambda: {str(i): i for i in range(65)},
    "object": lambda: Holder(ARRAY),
    "nested object": lambda: Holder([Holder({"a": Holder(NUMBERS)})]),
    "many floats in objects": lambda: [Holder(float(i)) for i in range(64)] + [Holder([Holder(0.5), Holder(0.6)])],
    "slots": lambda: Slotted(ARRAY),
    "dataclass": lambda: Settings(ARRAY),
    "named tuple": lambda: Pair(1, ARRAY),
    "namespace": lambda: types.SimpleNamespace(a=ARRAY),
    "class of an object": lambda: ClassHolder(),
    "class": lambda: ClassHolder,
    "closure": lambda: closure_over(NUMBERS),
    "closure over a list": lambda: closure_over(NUMBERS.tolist()),
    "default": lambda: default_of(ARRAY),
    "function attribute": lambda: attribute_of(ARRAY),
    "global": lambda: uses_a_global,
    "global of a called function": lambda: calls_what_uses_a_global,
    "attribute of a module": lambda: user_module(ARRAY),
    "constant in the code": lambda: lambda x: x in (0.123456, 0.654321, 0.5),
    "bytes in the code": lambda: lambda x: b"0123456789",
    "bound method": lambda: Holder(ARRAY).method,
    "bound method of a tensor": lambda: NUMBERS.add,
    "bound method of a list": lambda: NUMBERS.tolist().index,
    "callable object": lambda: Holder(ARRAY),
    "partial": lambda: functools.partial(torch.add, NUMBERS),
    "partial keyword": lambda: functools.partial(torch.add, other=NUMBERS.tolist()),
    "partial of a closure": lambda: functools.partial(closure_over(ARRAY), 1),
    "cache": lambda: cached,
    "bytes": lambda: b"data",
    "bytearray": lambda: bytearray(b"data"),
    "memoryview": lambda: memoryview(b"data"),
    "array": lambda: ARRAY,
    "object array": lambda: np.array([1, "a"], dtype=object),
    "numpy number": lambda: np.float64(0.123456),
    "array of the standard library": lambda: array.array("d", [0.1]),
    "deque": lambda: collections.deque(NUMBERS.tolist()),
    "sparse matrix": lambda: scipy.sparse.eye(3, format="csr"),
    "tensor": lambda: NUMBERS,
    "sparse tensor": lambda: torch.eye(3).to_sparse(),
    "parameters in a list": lambda: [nn.Parameter(NUMBERS)],
    "model in a tuple": lambda: (nn.Linear(2, 2),),
    "fitted scaler": lambda: StandardScaler().fit(ARRAY.reshape(-1, 2)),
    "fitted tree": lambda: DecisionTreeClassifier().fit(ARRAY.reshape(-1, 1), [0, 1, 0, 1]),
    "data of PyG": lambda: Data(x=NUMBERS.reshape(-1, 1)),
    "graph": lambda: random_graph(0),
    "long text": lambda: "a" * 257,
    "long text in a list": lambda: ["a" * 257],
    "large number": lambda: 1 << 80,
    "random state": lambda: random.Random(0),
    "torch's random state": lambda: torch.Generator(),
    "numpy's random state": lambda: np.random.default_rng(0),
    "iterator": lambda: iter([1, 2]),
    "counter": lambda: itertools.count(),
    "cycle": lambda: cyclic(ARRAY),
    "subclass of a list": lambda: tagged(ARRAY),
    "subclass of a text": lambda: tagged_text(ARRAY),
    "list that hides its items": lambda: Hides([ARRAY]),
    "object that cannot be read": lambda: Unreadable(1.0),
    "weak reference": lambda: weakref.ref(LIVE["holder"]),
    "default factory": lambda: collections.defaultdict(closure_over(ARRAY)),
}

FINE: dict[str, Callable[[], object]] = {
    "nothing": lambda: None,
    "float": lambda: 1 / 3,
    "layer sizes": lambda: [4, 64, 64, 3],
    "64 items": lambda: list(range(64)),
    "64 named items": lambda: {str(i): i for i in range(64)},
    "dropout rates": lambda: [0.5, 0.25, 0.1],
    "the same rate for ten layers": lambda: [0.5] * 10,
    "infinity": lambda: [float("inf"), float("-inf")],
    "names": lambda: {"act": "relu", "norm": None, "layers": (1, 2), "flags": {True, False}},
    "enum": lambda: [Colour.RED, Colour],
    "dtype and device": lambda: [torch.float32, torch.device("cpu"), np.dtype("f8")],
    "types": lambda: [int, Tensor, GCNConv, Holder, list[int], int | None, Pair],
    "function": lambda: functional.relu,
    "built-in function": lambda: torch.tanh,
    "numpy function": lambda: np.tanh,
    "lambda": lambda: lambda x: x.relu() * 0.5,
    "closure over a number": lambda: closure_over(0.2),
    "closure over a layer without weights": lambda: closure_over(nn.ReLU()),
    "partial": lambda: functools.partial(functional.leaky_relu, negative_slope=0.2),
    "partial of an exact number": lambda: functools.partial(functional.leaky_relu, negative_slope=1 / 3),
    "layers without weights": lambda: [nn.ReLU(), nn.Dropout(0.5)],
    "numpy size": lambda: np.int64(16),
    "settings": lambda: Settings("relu"),
    "path": lambda: Path("model.pt"),
    "reach": lambda: gf.Reach(2),
    "cycle": lambda: cyclic(None),
    "named tuple": lambda: Pair(1, "a"),
    "sentinel": object,
    "empty containers": lambda: [[], {}, set(), b"", collections.OrderedDict(), collections.Counter()],
}


class WithAttribute(OwnGCN):
    def __init__(self, value: object) -> None:
        super().__init__()
        self.held = value


def data_carriers_of(module: nn.Module) -> tuple[str, ...]:
    return tuple(data_carriers(module))


@pytest.mark.parametrize("name", CARRIERS)
def test_every_carrier_is_named(name: str) -> None:
    module = WithAttribute(CARRIERS[name]())
    (finding,) = set(data_carriers(module))
    assert finding.startswith("attribute 'held' of the module (WithAttribute) holds ")


@pytest.mark.parametrize("name", FINE)
def test_settings_are_no_carriers(name: str) -> None:
    assert data_carriers_of(WithAttribute(FINE[name]())) == ()


def test_an_open_file_is_named(tmp_path: Path) -> None:
    path = tmp_path / "data"
    path.write_text("data")
    with path.open() as file:
        assert "holds an open file" in data_carriers_of(WithAttribute([file]))[0]


def test_a_carrier_is_an_obstacle_of_the_inspection_and_keeps_from_linearising() -> None:
    module = WithAttribute(StandardScaler().fit(np.eye(COLUMNS)))
    assert "holds a numpy array in '" in gf.inspect(module, columns=COLUMNS).certification_blockers[0]
    with pytest.raises(gf.InputError, match="cannot be linearised: attribute 'held'"):
        gf.linearised(module, columns=COLUMNS)
    trained = gf.train(random_graph(0), module, epochs=1, polish_steps=0)
    assert any("attribute 'held'" in obstacle for obstacle in trained.certification_blockers)


def test_the_same_carrier_under_two_names_is_named_twice() -> None:
    module = WithAttribute(ARRAY)
    module.again = ARRAY  # type: ignore[assignment]
    assert len(data_carriers_of(module)) == 2


@pytest.mark.slow
def test_what_is_too_much_to_be_looked_at_is_a_finding() -> None:
    chain: list[object] = []
    for _ in range(MAX_OBJECTS + 10):
        chain = [Holder(chain)]
    assert "too many to be looked into" in str(first_captured_value(chain, registered={}))


# -- the module's own class ------------------------------------------------------------------------------------------


class WithClassAttribute(OwnGCN):
    table = NUMBERS.tolist()


class Inherits(WithClassAttribute):
    pass


class WithGlobal(OwnGCN):
    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return super().forward(x - MEAN_OF_THE_DATA, edge_index)


class WithGlobalInAnotherMethod(OwnGCN):
    def scaled(self, x: Tensor) -> Tensor:
        return x * TABLE_OF_THE_DATA[0]


class WithProperty(OwnGCN):
    @property
    def mean(self) -> Tensor:
        return MEAN_OF_THE_DATA


class WithStaticMethod(OwnGCN):
    @staticmethod
    def scaled(x: Tensor) -> Tensor:
        return x - MEAN_OF_THE_DATA


class WithDefault(OwnGCN):
    def forward(self, x: Tensor, edge_index: Tensor, mean: Tensor = MEAN_OF_THE_DATA) -> Tensor:
        return super().forward(x - mean, edge_index)


class WithDefaultOfInit(OwnGCN):
    def __init__(self, mean: Tensor = MEAN_OF_THE_DATA) -> None:
        super().__init__()


class WithLiteral(OwnGCN):
    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        shift = [0.123456, 0.234567, 0.345678, 0.456789]
        return super().forward(x - torch.tensor(shift, dtype=x.dtype), edge_index)


class WithCache(OwnGCN):
    @functools.lru_cache  # noqa: B019
    def degrees(self, nodes: int) -> int:
        return nodes


class WithSlots(OwnGCN):
    __slots__ = ("held_in_a_slot",)


def with_slots() -> nn.Module:
    module = WithSlots()
    object.__setattr__(module, "held_in_a_slot", NUMBERS)
    return module


def with_closure() -> nn.Module:
    mean = MEAN_OF_THE_DATA.clone()

    class Local(OwnGCN):
        def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
            return super().forward(x - mean, edge_index)

    return Local()


def with_replaced_forward() -> nn.Module:
    module, mean = OwnGCN(), MEAN_OF_THE_DATA.clone()
    original = module.forward
    module.forward = lambda x, edge_index: original(x - mean, edge_index)  # type: ignore[method-assign]
    return module


def with_backward_hook() -> nn.Module:
    module = OwnGCN()
    module.first.register_full_backward_hook(lambda *_: None)
    return module


def with_hook_of_pyg() -> nn.Module:
    module = OwnGCN()
    module.first.register_message_forward_hook(lambda *_: None)
    return module


def with_data_in_a_layer() -> nn.Module:
    module = OwnGCN()
    module.second.inspector.mean = ARRAY
    return module


def with_data_on_a_parameter() -> nn.Module:
    module = OwnGCN()
    module.first.lin.weight.mean = NUMBERS
    return module


class Meta(type):
    table = NUMBERS


class WithMetaclass(OwnGCN, metaclass=Meta):
    pass


def compiled() -> nn.Module:
    module = OwnGCN()
    module.head = torch.jit.trace(nn.Linear(2, 2), torch.zeros(1, 2))
    return module


def with_many_numbers() -> nn.Module:
    module = OwnGCN()
    for i in range(33):
        setattr(module, f"number_{i}", float(i))
    return module


@pytest.mark.parametrize(
    "make_module",
    [
        *(WithClassAttribute, Inherits, WithGlobal, WithGlobalInAnotherMethod, WithProperty, WithStaticMethod),
        *(
            WithDefault,
            WithDefaultOfInit,
            WithLiteral,
            WithCache,
            with_slots,
            with_closure,
            with_replaced_forward,
            with_backward_hook,
        ),
        *(with_hook_of_pyg, with_data_in_a_layer, with_many_numbers, with_data_on_a_parameter, WithMetaclass),
        *(compiled,),
    ],
)
def test_data_in_classes_methods_and_layers_is_named(make_module: Callable[[], nn.Module]) -> None:
    assert data_carriers_of(make_module())


class GINLookalike(OwnGCN):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("eps", torch.zeros(9))


def test_a_class_with_the_name_of_a_pyg_layer_is_not_believed() -> None:
    lookalike = type("GINConv", (GINLookalike,), {})()
    assert "buffer 'eps'" in data_carriers_of(lookalike)[0]


# -- no false alarm --------------------------------------------------------------------------------------------------


class OwnConvolution(MessagePassing):
    """A layer of the user's own on PyG's base class, with a long description that is no data: """ + "a " * 200

    def __init__(self) -> None:
        super().__init__(aggr="mean")
        self.linear = nn.Linear(COLUMNS, CLASSES)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return self.propagate(edge_index, x=self.linear(x))

    def message(self, x_j: Tensor) -> Tensor:
        return x_j


class SizedByTheData(OwnGCN):
    """As in PyG's tutorials: the constructor reads a global dataset, for its size alone."""

    def __init__(self) -> None:
        super().__init__()
        self.skip = nn.Linear(MEAN_OF_THE_DATA.numel(), CLASSES)

    def forward(self, x: Tensor, edge_index: Tensor, slope: float = 0.123456) -> Tensor:
        return super().forward(x, edge_index) + self.skip(x) * slope


class Deep(nn.Module):
    """What users write: sizes, activations, lists of layers, helpers, constants."""

    rate: float = 0.25
    sizes = (8, 8)

    def __init__(self) -> None:
        super().__init__()
        self.channels = [COLUMNS, *self.sizes, CLASSES]
        self.layers = nn.ModuleList([GATv2Conv(a, b) for a, b in itertools.pairwise(self.channels)])
        self.activation = functools.partial(functional.leaky_relu, negative_slope=0.2)
        self.last = torch.tanh
        self.dropout = nn.Dropout(0.5)
        self.head = nn.Sequential(nn.Linear(CLASSES, 8), nn.ReLU(), nn.Linear(8, CLASSES))
        self.options = {"act": "relu", "heads": 1, "p": 0.1}
        self.parent = [self]

    def reset_parameters(self) -> None:
        for layer in self.layers:
            layer.reset_parameters()  # type: ignore[operator]

    @torch.no_grad()
    def predict(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return self(x, edge_index).argmax(dim=1)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        for i, layer in enumerate(self.layers):
            x = self.dropout(self.activation(layer(x, edge_index))) if i else self.last(layer(x, edge_index))
        return self.head(x)


def gin_layer() -> nn.Module:
    return GINConv(nn.Sequential(nn.Linear(COLUMNS, 8), nn.ReLU(), nn.Linear(8, CLASSES)))


SIZES = {"in_channels": COLUMNS, "hidden_channels": 8, "num_layers": 2, "out_channels": CLASSES}
CLEAN: dict[str, Callable[[], nn.Module]] = {
    "pyg-gcn": lambda: pyg.GCN(**SIZES, dropout=0.5),
    "pyg-sage": lambda: pyg.GraphSAGE(**SIZES),
    "pyg-gat": lambda: pyg.GAT(**SIZES, heads=2, act="elu"),
    "pyg-gatv2": lambda: pyg.GAT(**SIZES, v2=True),
    "pyg-gin": lambda: pyg.GIN(**SIZES, norm=None),
    "pyg-gcn-jumping": lambda: pyg.GCN(**SIZES, jk="cat"),
    "pyg-gcn-layer-norm": lambda: pyg.GCN(**SIZES, norm=nn.LayerNorm(8)),
    "pyg-pna-like": lambda: pyg.GraphSAGE(**SIZES, aggr=["mean", "max"]),
    "gin-layer": gin_layer,
    "own-gcn": OwnGCN,
    "own-layer": OwnConvolution,
    "deep": Deep,
    "sized-by-the-data": SizedByTheData,
}


@pytest.mark.slow
@pytest.mark.parametrize("name", CLEAN)
def test_ordinary_modules_raise_no_alarm(name: str) -> None:
    torch.manual_seed(0)
    module = CLEAN[name]()
    assert gf.inspect(module, columns=COLUMNS).certification_blockers == ()
    graph = random_graph(0, nodes=30, edges=40)
    assert gf.train(graph, module, epochs=2, polish_steps=1).certification_blockers == ()


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in CLEAN if name != "pyg-pna-like"])
def test_ordinary_modules_raise_no_alarm_when_linearised(name: str) -> None:
    torch.manual_seed(0)
    linearised = gf.linearised(CLEAN[name](), columns=COLUMNS)
    assert gf.inspect(linearised, columns=COLUMNS).certification_blockers == ()
    trained = gf.train(random_graph(0, nodes=30, edges=40), linearised)
    assert trained.certifiable


def test_batch_norm_in_a_model_of_pyg_is_named() -> None:
    module = pyg.GIN(**SIZES, norm="batch_norm")
    assert any("(BatchNorm1d) carries statistics" in finding for finding in data_carriers_of(module))


# -- changes in training ---------------------------------------------------------------------------------------------


class Records(OwnGCN):
    """Keeps numbers of what it has seen in training, where nobody looks."""

    def __init__(self, record: Callable[[Records, float], None]) -> None:
        super().__init__()
        self.record = record
        self.numbers: list[float] = []
        self.settings = Settings(0.5)
        self.names: dict[str, Any] = {}

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        if self.training:
            self.record(self, round(float(x.sum()), 1))
        return super().forward(x, edge_index)


def add_one(module: Records, value: float) -> None:
    module.numbers[:] = [value]


def set_one(module: Records, value: float) -> None:
    module.settings.value = value


def name_one(module: Records, value: float) -> None:
    module.names[f"{value}"] = 1


def count(module: Records, value: float) -> None:
    global STEPS
    STEPS += 1


def new_attribute(module: Records, value: float) -> None:
    module.seen = value  # type: ignore[assignment]


def in_a_closure() -> Callable[[Records, float], None]:
    last = 0.0

    def record(module: Records, value: float) -> None:
        nonlocal last
        last = value

    return record


def on_the_function(module: Records, value: float) -> None:
    on_the_function.seen = int(value)  # type: ignore[attr-defined]


@pytest.mark.slow
@pytest.mark.parametrize("record", [add_one, set_one, name_one, count, new_attribute, in_a_closure(), on_the_function])
def test_what_training_changes_is_named(record: Callable[[Records, float], None]) -> None:
    module = Records(record)
    assert data_carriers_of(module) == ()
    trained = gf.train(random_graph(0), module, epochs=2, polish_steps=0)
    assert any("changed in training and may carry data" in obstacle for obstacle in trained.certification_blockers)


def test_the_fingerprint_sees_content_and_no_identity() -> None:
    one, other = ([Holder({"a": [1, Settings(0.5)]})] for _ in range(2))
    assert reachable_digest(one, registered={}) == reachable_digest(other, registered={})
    other[0].value["a"][1].value = 0.25  # type: ignore[index]
    assert reachable_digest(one, registered={}) != reachable_digest(other, registered={})
    assert reachable_digest([[1], 2], registered={}) != reachable_digest([1, [2]], registered={})


# -- models of this package ------------------------------------------------------------------------------------------


def forged() -> nn.Module:
    class SGC(OwnGCN):
        __module__ = "graphforget.models.fixed"
        reach = gf.Reach(0)

    return SGC()


def subclassed() -> nn.Module:
    return type("SGC", (SGC,), {"__module__": "graphforget.models.fixed"})(COLUMNS, CLASSES)


def test_no_class_but_those_of_this_package_is_built_in() -> None:
    assert not is_built_in(forged())
    assert not is_built_in(subclassed())
    assert not is_affine(subclassed())
    assert not is_built_in(Linear(COLUMNS, CLASSES))
    for name in ("sgc", "sign", "gcn", "gat", "gin", "sage", "linearised-gcn"):
        assert is_built_in(make(name))
    with pytest.raises(gf.InputError, match="declared reach .* is too small"):
        gf.inspect(forged(), columns=COLUMNS)


def extra_tensor(module: nn.Module) -> None:
    module.held = NUMBERS


def extra_list(module: nn.Module) -> None:
    module.held = [0.123456]  # type: ignore[assignment]


def extra_buffer(module: nn.Module) -> None:
    module.register_buffer("held", NUMBERS)


def squashed(self: GCN | SGC, x: Any, edge_index: Any) -> Tensor:
    return type(self).forward(self, x, edge_index).tanh()


def replaced_forward(module: nn.Module) -> None:
    module.forward = types.MethodType(squashed, module)


def replaced_reach(module: nn.Module) -> None:
    module.reach = gf.Reach(0)  # type: ignore[assignment]


def forward_hook(module: nn.Module) -> None:
    module.register_forward_hook(lambda *_: None)


def hook_of_a_layer(module: nn.Module) -> None:
    module.first.register_forward_pre_hook(lambda *_: None)  # type: ignore[union-attr]


def replaced_layer(module: nn.Module) -> None:
    module.first = nn.Linear(COLUMNS, 5)


def frozen_layer(module: nn.Module) -> None:
    module.first.weight.requires_grad_(False)  # type: ignore[union-attr]


ALTERATIONS = [extra_tensor, extra_list, extra_buffer, replaced_forward, replaced_reach, forward_hook]
ALTERATIONS += [hook_of_a_layer, replaced_layer, frozen_layer]


@pytest.mark.parametrize("alter", ALTERATIONS)
def test_an_altered_model_of_this_package_is_not_trusted(alter: Callable[[nn.Module], None]) -> None:
    module = GCN(COLUMNS, CLASSES, hidden=5)
    alter(module)
    assert not is_built_in(module)
    assert not reach_is_proven(module)
    assert data_carriers_of(module)


@pytest.mark.parametrize("alter", ALTERATIONS[:4] + ALTERATIONS[5:6])
def test_an_altered_convex_model_is_not_certifiable(alter: Callable[[nn.Module], None]) -> None:
    module = SGC(COLUMNS, CLASSES)
    alter(module)
    assert not is_affine(module)
    trained = gf.train(random_graph(0), module, epochs=1, polish_steps=0)
    assert not trained.certifiable
    assert trained.certification_blockers


def test_an_altered_base_of_a_linearised_model_is_named() -> None:
    linearised = gf.linearised(GCN(COLUMNS, CLASSES, hidden=5), columns=COLUMNS)
    linearised.base.held = ARRAY  # type: ignore[assignment]
    assert not reach_is_proven(linearised)
    assert "holds a numpy array" in gf.inspect(linearised, columns=COLUMNS).certification_blockers[0]
    assert not gf.train(random_graph(0), linearised).certifiable


def test_a_copy_of_a_model_of_this_package_is_one() -> None:
    module = copy.deepcopy(SGC(COLUMNS, CLASSES))
    assert is_built_in(module)
