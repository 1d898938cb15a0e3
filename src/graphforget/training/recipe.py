"""How a model was trained, and the requests that it has served since: settings and numbers, no data."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from graphforget.errors import InputError
from graphforget.privacy.gaussian import release_ratio
from graphforget.validation import LARGEST_STORED, named_in_files, whole_number

SMALLEST_NOISE = 1e-100  # noise is squared, and rounded to a finer grid
RELEASES = 64  # a weekly batch for a year, and twelve urgent requests
MOST_STEPS = 10**6  # epochs or polish steps of a training
# Gradients are measured in float64; below this norm what is measured may be rounding.
ROUNDING_FLOOR = 1e-12
ADOPTED = "adopted"  # among the options of a model that was trained elsewhere; files and certificates show it


@dataclass(frozen=True)
class Recipe:
    """The settings of a training.

    For built-in models the recipe and the graph decide the weights. A user's module also has initial weights, which
    are not recorded.
    """

    model: str
    options: dict[str, Any]
    seed: int
    mu: float
    loss: str
    epochs: int
    learning_rate: float
    polish_steps: int
    tolerance: float
    sigma: float = 0.0  # standard deviation of the noise in every release, fixed here and by no request
    objective_noise: float = 0.0  # standard deviation of `b` in F (objective perturbation)
    noise_seed: int | None = None  # of `b`; None: from the operating system, as it has to be to hide anything
    epsilon: float = 1.0  # what `releases` releases together guarantee, with `delta`: fixed here and by no request
    delta: float = 1e-5
    releases: int = RELEASES
    floor: float | None = None  # the least score of a release, see `utility`
    environment: dict[str, Any] = field(default_factory=dict)  # library versions and threads; {} if unknown

    def __post_init__(self) -> None:
        for name, value, good in (
            ("mu", self.mu, 0 < self.mu <= LARGEST_STORED),
            ("tolerance", self.tolerance, 0 < self.tolerance <= LARGEST_STORED),
            ("tolerance x mu", self.tolerance * self.mu, self.tolerance * self.mu >= ROUNDING_FLOOR),
            ("learning_rate", self.learning_rate, 0 < self.learning_rate <= LARGEST_STORED),
        ):
            if not good:
                raise InputError(f"{name} is {value}, it must be positive, finite and well above rounding")
        for name in ("sigma", "objective_noise"):
            value = getattr(self, name)
            if not (value == 0 or SMALLEST_NOISE <= value <= LARGEST_STORED):
                raise InputError(f"{name} is {value}, 0 or a finite number from {SMALLEST_NOISE:g} is needed")
        for name in ("epochs", "polish_steps"):
            if whole_number(getattr(self, name), name) > MOST_STEPS:
                raise InputError(f"{name} is {getattr(self, name)}, up to {MOST_STEPS:,} are possible")
        whole_number(self.seed, "seed")
        whole_number(0 if self.noise_seed is None else self.noise_seed, "noise_seed")
        release_ratio(epsilon=self.epsilon, delta=self.delta, releases=self.releases)  # checks all three
        if self.floor is not None and not 0 <= self.floor <= 1:
            raise InputError(f"floor is {self.floor!r}, a number from 0 to 1 is needed")

    @property
    def adopted(self) -> bool:
        """Whether the model was trained elsewhere (`gf.adopt`), so that no training by this recipe made its weights."""
        return self.options.get(ADOPTED) is True

    def releases_left(self, ratios: Sequence[float]) -> int | None:
        """How many more releases `epsilon` and `delta` cover after some of these ratios; None without noise."""
        if not self.sigma:
            return None
        share = release_ratio(epsilon=self.epsilon, delta=self.delta, releases=self.releases)
        spent = math.hypot(*(ratio / share for ratio in ratios)) if share else math.inf
        if spent > math.sqrt(self.releases) + 1:  # a square could overflow
            return 0
        return max(0, math.floor((self.releases - spent**2) * (1 + 1e-9) + 1e-9))


def derived_seed(seed: int, number: int) -> int:
    """A seed of 63 bits for one model of several; different for every model and every seed."""
    return (1_000_003 * seed + number) % 2**63


UPDATE = "update"  # in place of a method: the graph grew or was corrected


@dataclass(frozen=True)
class HistoryEntry:
    """A request that was unlearned since the model was trained: numbers only, no names."""

    method: str
    m: int  # training nodes before it
    removed: int  # training nodes that were removed
    affected: int  # remaining training nodes whose loss may have changed
    step_norm: float  # the distance that the weights moved
    gradient_norm: float  # ||grad F|| before it
    # A bound on what the step leaves of the gradient of m F (None: there is none), and its sum over the classes.
    gradient_residual_bound: float | None = named_in_files("leftover", default=None)
    gradient_residual_bound_by_class: float = named_in_files("leftover_by_class", default=0.0)
    refuted: tuple[str, ...] = ()  # conditions of its claim that were measured and did not hold

    def __post_init__(self) -> None:
        for name in ("m", "removed", "affected"):
            whole_number(getattr(self, name), f"{name} in the history")
        for name in ("step_norm", "gradient_norm", "gradient_residual_bound", "gradient_residual_bound_by_class"):
            value = getattr(self, name)
            if name == "gradient_residual_bound" and value is None:
                continue
            if not isinstance(value, int | float) or not 0 <= value <= LARGEST_STORED:
                raise InputError(f"{name} in the history is {value!r}, a finite number from 0 is needed")
        object.__setattr__(self, "refuted", tuple(map(str, self.refuted)))
