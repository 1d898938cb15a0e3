"""What replay costs a training step: CPU time against one with torch's own dropout and algorithms, in one run.

GRAPHFORGET_DATA=... python benchmarks/training_step.py [--data cora] [--repetitions 15] [--steps 10]
"""

from __future__ import annotations

import argparse
import contextlib
import time
from statistics import median

import torch
from torch import nn

import graphforget as gf
from graphforget.linalg.pattern import Pattern
from graphforget.models.dropout import KeyedDropout
from graphforget.models.inputs import model_inputs
from graphforget.models.parameters import trainable
from graphforget.models.registry import MODELS, build
from graphforget.training.fit import deterministic


def steps(module: nn.Module, graph: gf.Graph, *, count: int, keyed: bool, mu: float) -> float:
    """Seconds of CPU time for a step, as `fitting.py` takes it."""
    inputs = model_inputs(module, graph, dtype=torch.float32)
    rows, labels = graph.train_rows, graph.y[graph.train_rows]
    parameters = [p for _, p in trainable(module)]
    optimiser = torch.optim.Adam(parameters, lr=0.01)
    edges = inputs[1] if isinstance(inputs[1], Pattern) else graph.edge_index
    dropout = KeyedDropout(graph.numbers, edges, seed=0)
    started = 0.0
    for epoch in range(count + 1):
        if epoch == 1:  # the first step also makes what the others share
            started = time.process_time()
        optimiser.zero_grad()
        with dropout.at(epoch) if keyed else contextlib.nullcontext():
            logits = module(*inputs)
        value = nn.functional.cross_entropy(logits[rows], labels)
        value = value + 0.5 * mu * sum(p.square().sum() for p in parameters)
        value.backward()
        optimiser.step()
    return (time.process_time() - started) / count


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", default="cora")
    parser.add_argument("--repetitions", type=int, default=15)
    parser.add_argument("--steps", type=int, default=10)
    args = parser.parse_args()
    graph = gf.load(args.data)
    for name in ("gcn", "gat"):
        seconds: dict[bool, list[float]] = {False: [], True: []}
        for repetition in range(args.repetitions):
            for keyed in (False, True) if repetition % 2 else (True, False):
                module = build(name, columns=graph.num_columns, classes=graph.num_classes).train()
                with deterministic() if keyed else contextlib.nullcontext():
                    seconds[keyed].append(steps(module, graph, count=args.steps, keyed=keyed, mu=MODELS[name].mu))
        before, after = median(seconds[False]), median(seconds[True])
        ratio = median(b / a for a, b in zip(seconds[False], seconds[True], strict=True))
        print(f"{name}: {1e3 * before:.2f} ms with torch's dropout, {1e3 * after:.2f} ms keyed, ratio {ratio:.3f}")


if __name__ == "__main__":
    main()
