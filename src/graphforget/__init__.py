"""graphforget: make graph neural networks forget people, relations and attributes.

>>> import graphforget as gf
>>> graph = gf.load("patients")
>>> trained = gf.train(graph, model="sgc", seed=0)
>>> round(trained.micro_f1(graph), 2) > 0.9
True
"""

from graphforget.audit import Audit, Release, audit
from graphforget.audit_run import audit_run
from graphforget.certificates.document import Certificate
from graphforget.certificates.paper_bounds import Constants
from graphforget.certificates.signing import make_keys, private_key, public_key, signed
from graphforget.compare import compare
from graphforget.datasets import DATASETS, load
from graphforget.doctor import Inspection, inspect
from graphforget.errors import FloorMissed, InputError, Mismatch, Refused
from graphforget.footprint import Footprint, PaperSets, footprint, paper_sets
from graphforget.graph import Graph
from graphforget.losses import Loss
from graphforget.models.linearised import linearised
from graphforget.models.reach import Reach
from graphforget.models.registry import MODELS
from graphforget.objective import Objective
from graphforget.plan import Plan, plan
from graphforget.records import Answer, answer, load_released, releases_so_far, save_outcome, verify_run
from graphforget.request import Request
from graphforget.rundir import load as load_run
from graphforget.rundir import save as save_run
from graphforget.trained import Recipe, Trained
from graphforget.training import train
from graphforget.unlearning.base import Method
from graphforget.unlearning.outcome import Outcome
from graphforget.unlearning.registry import METHODS, unlearn
from graphforget.verify import Verification, verify

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
