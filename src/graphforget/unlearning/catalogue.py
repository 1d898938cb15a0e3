"""The properties of each method, as `graphforget methods` lists them. Nothing here computes."""

from __future__ import annotations

from dataclasses import dataclass

from graphforget.certificates.levels import Level
from graphforget.request.kinds import KINDS, Kind

AUTO = "auto"  # the cheapest method that reaches the best level


@dataclass(frozen=True)
class MethodInfo:
    """The properties of one method."""

    name: str
    title: str
    reference: str
    level: Level  # the best that it can reach
    kinds: frozenset[Kind] = frozenset(KINDS)  # kinds of request that it can answer
    models: str = "all but sharded, stacked, boosted"  # those that it supports, in words
    sequential: str = "yes"  # whether it can answer several requests in a row


NEWTON = MethodInfo(
    name="newton",
    title="Newton steps on the retained graph, to a measured distance",
    reference="-",
    level="certified",
    models="sgc, sign, linearised, stacked, boosted",
)
RETRAIN = MethodInfo(
    name="retrain",
    title="Retraining from scratch on the retained graph",
    reference="-",
    level="exact",
    models="any",
)
IDEA = MethodInfo(
    name="idea",
    title="IDEA, one influence step with the paper's bound",
    reference="Dong et al., KDD 2024",
    level="conditional",
    sequential="bounds add up",
)
GRAPHERASER = MethodInfo(
    name="grapheraser",
    title="GraphEraser, the touched shards trained again",
    reference="Chen et al., CCS 2022",
    level="exact",
    models="sharded",
)
GIF = MethodInfo(
    name="gif",
    title="GIF, one influence step without a certificate",
    reference="Wu et al., WWW 2023",
    level="empirical",
    kinds=frozenset({"nodes", "edges", "attributes", "graphs"}),
)
CEU = MethodInfo(
    name="ceu",
    title="CEU, one influence step for edges with its own bounds",
    reference="Wu et al., KDD 2023",
    level="conditional",
    kinds=frozenset({"edges"}),
    sequential="bounds add up",
)
CGU = MethodInfo(
    name="cgu",
    title="CGU, one Newton step under a budget, retraining when it is spent",
    reference="Chien et al., ICLR 2023",
    level="conditional",
    models="cgu",
    sequential="until the budget is spent",
)
SCALEGUN = MethodInfo(
    name="scalegun",
    title="ScaleGUN, CGU's step on features that are propagated lazily",
    reference="Yi and Wei, ICLR 2025",
    level="conditional",
    models="scalegun",
    sequential="until the budget is spent",
)
GNNDELETE = MethodInfo(
    name="gnndelete",
    title="GNNDelete, a trained operator on the nodes around the deleted data",
    reference="Cheng et al., ICLR 2023",
    level="empirical",
    kinds=frozenset({"nodes", "edges", "attributes", "partial attributes"}),
    models="gcn, sage, link-gcn",
    sequential="no, retrain first",
)
MEGU = MethodInfo(
    name="megu",
    title="MEGU, mutual evolution of predictions and forgetting",
    reference="Li et al., AAAI 2024",
    level="empirical",
    kinds=frozenset({"nodes", "edges", "attributes"}),
)
ASCENT = MethodInfo(
    name="ascent",
    title="Gradient ascent on the data to delete",
    reference="Golatkar et al., CVPR 2020",
    level="empirical",
)

CATALOGUE = (NEWTON, RETRAIN, IDEA, GRAPHERASER, GIF, CEU, CGU, SCALEGUN, GNNDELETE, MEGU, ASCENT)
