"""graphforget: make graph neural networks forget people, relations and attributes.

>>> import graphforget as gf
>>> graph = gf.load("patients")
>>> trained = gf.train(graph, model="sgc", seed=0)
>>> round(trained.micro_f1(graph), 2) > 0.9
True

The public names are listed in `__init__.pyi`. Each is imported when it is first used, so that a command that needs no
torch does not wait for it.
"""

import lazy_loader

__version__ = "0.1.0"

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
