"""graphforget: make graph neural networks forget people, relations and attributes.

>>> import graphforget as gf
>>> graph = gf.load("patients")
>>> trained = gf.train(graph, model="sgc", seed=0)
>>> round(trained.micro_f1(graph), 2) > 0.9
True
"""

from graphforget.audits.audit import Audit, Release, audit
from graphforget.certificates.document import Certificate
from graphforget.certificates.signing import make_keys, private_key, public_key, signed
from graphforget.datasets.registry import DATASETS, load
from graphforget.errors import FloorMissed, InputError, Mismatch, Refused
from graphforget.graph.graph import Graph
from graphforget.graph.reach import Reach
from graphforget.models.inspection import Inspection, inspect
from graphforget.models.linearised import linearised
from graphforget.models.registry import MODELS
from graphforget.privacy.paper_bounds import Constants
from graphforget.request.footprint import Footprint, PaperSets, footprint, paper_sets
from graphforget.request.request import Request
from graphforget.runs.apply import Answer, answer, save_outcome
from graphforget.runs.audit import audit_run
from graphforget.runs.read import load_run
from graphforget.runs.released import load_released, releases_so_far
from graphforget.runs.verify import verify_run
from graphforget.runs.write import save_run
from graphforget.training.losses import Loss
from graphforget.training.objective import Objective
from graphforget.training.recipe import Recipe
from graphforget.training.train import train
from graphforget.training.trained import Trained
from graphforget.unlearning.compare import compare
from graphforget.unlearning.method import Method
from graphforget.unlearning.outcome import Outcome
from graphforget.unlearning.plan import Plan, plan
from graphforget.unlearning.registry import METHODS, unlearn
from graphforget.verification.verify import Verification, verify

__version__ = "0.1.0"

__all__ = [
    "DATASETS",
    "METHODS",
    "MODELS",
    "Answer",
    "Audit",
    "Certificate",
    "Constants",
    "FloorMissed",
    "Footprint",
    "Graph",
    "InputError",
    "Inspection",
    "Loss",
    "Method",
    "Mismatch",
    "Objective",
    "Outcome",
    "PaperSets",
    "Plan",
    "Reach",
    "Recipe",
    "Refused",
    "Release",
    "Request",
    "Trained",
    "Verification",
    "answer",
    "audit",
    "audit_run",
    "compare",
    "footprint",
    "inspect",
    "linearised",
    "load",
    "load_released",
    "load_run",
    "make_keys",
    "paper_sets",
    "plan",
    "private_key",
    "public_key",
    "releases_so_far",
    "save_outcome",
    "save_run",
    "signed",
    "train",
    "unlearn",
    "verify",
    "verify_run",
]
