"""The levels of guarantees. An outcome has exactly one of them."""

from __future__ import annotations

from typing import Literal, get_args

Level = Literal["exact", "certified", "conditional", "empirical"]

LEVELS: tuple[Level, ...] = get_args(Level)  # best first

MEANING: dict[Level, str] = {
    "exact": "the weights are those that training on the retained graph gives, by the same recipe and seeds",
    "certified": "the released weights are (epsilon, delta)-indistinguishable from the equally noised optimum on the "
    "retained graph, which retraining approaches",
    "conditional": "the released weights are (epsilon, delta)-indistinguishable from retrained ones with the same kind "
    "of noise if every condition listed holds",
    "empirical": "nothing is guaranteed",
}

NOT_COVERED = (
    "models released before this request, and what can be learned by comparing them with the next one",
    "requests that were chosen by looking at models released before the deletion",
    "that a request came, and when",
    "settings that were chosen by looking at what was deleted: the model, its options, class weights, seeds, the "
    "split, whether attributes are stored sparse",
    "what the private files tell: the annex, reports and ledgers in their private form, audits, the run directory",
    "copies of the old weights and of the data: checkpoints, backups, run directories, caches, logs",
    "predictions and embeddings that were computed with the old weights",
    "what was fitted on all rows before it came here: scalers, PCA, similarity graphs, the choice of settings",
)

ESTIMATED = "rounding of float64 beyond its allowance, which for this model is an estimate and not a bound"
GIVEN_PARTS = "the choice of the nodes in each part, if it depends on other nodes: the caller gave the parts"
OWN_MODULES = "data that the operator's own code for encoders or networks reads from elsewhere, such as from a file"


def is_met(required: Level | None, level: Level | None) -> bool:
    """Whether `level` is at least as good as `required`. A `required` of None is met by every level."""
    return level is not None and (required is None or LEVELS.index(level) <= LEVELS.index(required))
