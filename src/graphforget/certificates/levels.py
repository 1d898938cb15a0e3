"""The ladder of guarantee levels. An outcome carries exactly one, and never a higher one than it earned."""

from __future__ import annotations

from typing import Literal, get_args

Level = Literal["exact", "certified", "conditional", "empirical"]

LEVELS: tuple[Level, ...] = get_args(Level)  # best first

MEANING: dict[Level, str] = {
    "exact": "the weights are distributed as those of retraining on the retained graph",
    "certified": "the released weights are (epsilon, delta)-indistinguishable from the equally noised optimum on the "
    "retained graph, which retraining approaches",
    "conditional": "the released weights are (epsilon, delta)-indistinguishable from retrained ones with the same kind "
    "of noise if every condition listed holds",
    "empirical": "nothing is guaranteed",
}
