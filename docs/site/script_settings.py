"""The settings that the numbers of a script depend on, read from its source and from the package as it is now.

Settings of a script are its constants, the defaults of its arguments and functions, and the literal arguments of its
calls. Settings of the package are the defaults of the functions that the script calls, and those of the models that it
names. A comment, a docstring, a printed text or another line of code is no setting.
"""

from __future__ import annotations

import ast
import dataclasses
import importlib
import inspect
import re
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import graphforget as gf
from graphforget.models.registry import MODELS, ModelEntry, count_parameters

Settings = dict[str, str]  # name -> value, both as text

OWN = "script"  # the first word of settings of the script itself
METHODS_OF = (gf.Graph, gf.Trained)  # a call of one of their methods is recognised by its name
SIMPLE = (bool, int, float, str)
NOT_SHOWN = ("name", "title", "build", "paper", "affine", "composite")  # fields of a model that are no setting
BY_ADAM = ("epochs", "learning_rate", "polish_steps")  # settings of models that are trained by Adam
COLUMNS, CLASSES = 7, 3  # of the models whose parameters are counted, which shows their widths
SAY_NOTHING = (  # calls whose literals are texts, names of outputs or formats
    *("print", "format", "join", "strip", "rstrip", "startswith", "endswith", "encode", "decode", "round", "text"),
    *("ArgumentParser", "exit", "SystemExit", "run", "dumps", "loads", "getattr", "isinstance", "zip", "append"),
    *("open", "write", "write_text", "write_bytes", "read_text", "mkdir", "Path", "with_name", "savefig", "which"),
    *("mkdtemp", "TemporaryDirectory", "search", "findall", "fullmatch", "sub", "compile", "dataclass", "context"),
    *("fail", "skip", "fixture", "parametrize", "usefixtures"),
)
OF_TEXT_TOO = ("split", "replace", "set", "get", "find")  # methods of texts and dicts: only arguments with a name count


def settings_of(script: Path, *, arguments: Iterable[str] = (), functions: str | None = None) -> Settings:
    """The settings of a script, and the arguments that it is called with in the documents.

    With `functions`, only those of its functions count that have this word in their name: "" for none.
    """
    result: Settings = {}
    words: set[str] = set()
    for path in [script, *_neighbours(script)]:
        tree = ast.parse(path.read_text())
        if functions is not None:
            tree.body = [node for node in tree.body if _counts(node, functions)]
        result |= {f"{OWN}: {name}": value for name, value in _own(tree, "" if path == script else f"{path.stem}.")}
        words |= _words(tree)
        result |= _package_defaults(tree)
    given = sorted(set(filter(None, arguments)))
    result |= {f"{OWN}: arguments in the documents": "; ".join(given)} if given else {}
    words |= {word for line in given for word in line.split()}
    for name in _models(words):
        result |= {f"model {name}: {field}": value for field, value in _model_defaults(MODELS[name], words)}
    return dict(sorted(result.items()))


def defaults_of(*functions: Callable[..., Any], arguments: Iterable[str]) -> Settings:
    """The defaults of functions of the package and of the models that the arguments of a command name."""
    words = {word for line in arguments for word in line.split()}
    result = {f"{OWN}: arguments in the documents": "; ".join(sorted(arguments))}
    for function in functions:
        result |= {f"gf.{function.__name__}: {name}": value for name, value in _signature_defaults(function)}
    for name in _models(words):
        result |= {f"model {name}: {field}": value for field, value in _model_defaults(MODELS[name], words)}
    return dict(sorted(result.items()))


def differences(stored: Settings, now: Settings) -> list[str]:
    """One phrase for each setting that is not what it was. A new setting of the package has a default as before."""
    phrases = []
    for name in sorted(stored.keys() | now.keys()):
        if name not in now:
            phrases.append(f"{name} was {stored[name]}, it is gone")
        elif name not in stored:
            phrases += [f"{name} is new: {now[name]}"] if name.startswith(OWN) else []
        elif stored[name] != now[name]:
            phrases.append(f"{name} was {stored[name]}, it is {now[name]}")
    return phrases


def _counts(node: ast.stmt, functions: str) -> bool:
    if isinstance(node, ast.FunctionDef):
        return bool(functions) and functions in node.name
    return not isinstance(node, ast.ClassDef)


def _neighbours(script: Path) -> list[Path]:
    """The modules beside the script that it imports."""
    tree = ast.parse(script.read_text())
    names = [alias.name for node in tree.body if isinstance(node, ast.Import) for alias in node.names]
    names += [node.module for node in tree.body if isinstance(node, ast.ImportFrom) and node.module]
    return [path for name in names if (path := script.with_name(f"{name}.py")).is_file()]


def _own(tree: ast.Module, prefix: str) -> Iterator[tuple[str, str]]:
    """Constants, defaults of arguments and of functions, and literals in calls."""
    for node in tree.body:
        if isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None and _is_setting(node.value):
            target = node.targets[0] if isinstance(node, ast.Assign) else node.target
            yield f"{prefix}{ast.unparse(target)}", ast.unparse(node.value)
    literals: dict[str, set[str]] = {}
    for part in ast.walk(tree):
        if isinstance(part, ast.FunctionDef):
            yield from _function_defaults(part, prefix)
        elif isinstance(part, ast.Call):
            name = _called(part)
            if name == "add_argument":
                yield from _argument_default(part, prefix)
            elif name and name not in SAY_NOTHING:
                literals.setdefault(name, set()).update(_literals(part, named_only=name in OF_TEXT_TOO))
    yield from ((f"{prefix}{name}()", ", ".join(sorted(values))) for name, values in literals.items() if values)


def _is_setting(value: ast.expr) -> bool:
    """Whether it is no text of more words, no path and nothing that is computed from the place of a file."""
    if isinstance(value, ast.Constant) and isinstance(value.value, str):
        return len(value.value.split()) == 1
    named = {part.id for part in ast.walk(value) if isinstance(part, ast.Name)}
    return not isinstance(value, ast.Subscript) and not named & {"__file__", "Path", "pytest"}


def _function_defaults(function: ast.FunctionDef, prefix: str) -> Iterator[tuple[str, str]]:
    given = function.args
    positional = [*given.posonlyargs, *given.args]
    pairs = [*zip(positional[len(positional) - len(given.defaults) :], given.defaults, strict=True)]
    pairs += [(name, default) for name, default in zip(given.kwonlyargs, given.kw_defaults, strict=True) if default]
    yield from ((f"{prefix}{function.name}({name.arg})", ast.unparse(default)) for name, default in pairs)


def _argument_default(call: ast.Call, prefix: str) -> Iterator[tuple[str, str]]:
    names = [ast.literal_eval(part) for part in call.args if isinstance(part, ast.Constant)]
    for keyword in call.keywords:
        if keyword.arg == "default" and names and names[0] not in ("--out", "--jobs"):
            yield f"{prefix}{names[0]}", ast.unparse(keyword.value)


def _called(call: ast.Call) -> str:
    if isinstance(call.func, ast.Attribute):
        return call.func.attr
    return call.func.id if isinstance(call.func, ast.Name) else ""


def _literals(call: ast.Call, *, named_only: bool) -> Iterator[str]:
    for part in [] if named_only else call.args:
        if _is_literal(part):
            yield ast.unparse(part)
    for keyword in call.keywords:
        if keyword.arg not in (None, "help", "description") and _is_literal(keyword.value):
            yield f"{keyword.arg}={ast.unparse(keyword.value)}"


def _is_literal(part: ast.expr) -> bool:
    try:
        value = ast.literal_eval(part)
    except (ValueError, TypeError, SyntaxError):
        return False
    return value is not None and not (isinstance(value, str) and len(value.split()) > 2)


def _words(tree: ast.Module) -> set[str]:
    """The words of all texts in the code but docstrings; a formatted text gives a pattern of its parts."""
    documented = ast.Module | ast.FunctionDef | ast.ClassDef
    docstrings = {id(node.body[0].value) for node in ast.walk(tree) if isinstance(node, documented) and _begins(node)}  # type: ignore[attr-defined]
    words: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            parts = ("*" if isinstance(part, ast.FormattedValue) else ast.literal_eval(part) for part in node.values)
            words.add("".join(parts))
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docstrings:
            words.update(re.split(r"[\s,;=:]+", node.value))
    return words


def _begins(node: ast.Module | ast.FunctionDef | ast.ClassDef) -> bool:
    first = node.body[0] if node.body else None
    return isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant)


def _models(words: set[str]) -> list[str]:
    """The built-in models that these words name: by their name, by a pattern, or by that without the kind of item."""
    patterns = [re.compile(re.escape(word).replace(r"\*", "(.+)")) for word in words if re.search(r"\w-\*|\*-\w", word)]
    result = []
    for name in MODELS:
        kind, _, rest = name.partition("-")
        of_items = kind in ("link", "graph") and rest in words and (kind in words or rest not in MODELS)
        by_pattern = any((match := p.fullmatch(name)) and set(match.groups()) <= words for p in patterns)
        result += [name] if name in words or of_items or by_pattern else []
    return result


def _model_defaults(entry: ModelEntry, words: set[str]) -> Iterator[tuple[str, str]]:
    for field in dataclasses.fields(entry):
        if field.name not in NOT_SHOWN and (entry.has_epochs or field.name not in BY_ADAM):
            yield field.name, str(getattr(entry, field.name))
    if "paper" in words:
        yield "paper", ", ".join(f"{key} {value}" for key, value in dataclasses.asdict(entry.schedule("paper")).items())
    yield from _signature_defaults(entry.build)
    yield "parameters", str(count_parameters(entry.name, columns=COLUMNS, classes=CLASSES, options={}))


def _package_defaults(tree: ast.Module) -> Settings:
    """The defaults of the functions of the package that the code calls, and the constants that it imports."""
    known: dict[str, Any] = {"gf": gf}
    result: Settings = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("graphforget"):
            module = importlib.import_module(node.module or "")
            known |= {alias.asname or alias.name: getattr(module, alias.name, None) for alias in node.names}
    for name, value in known.items():
        if name.isupper() and _is_simple(value):
            result[f"{name}"] = repr(value)
    for call in (node for node in ast.walk(tree) if isinstance(node, ast.Call)):
        title, function = _function_of_the_package(call.func, known)
        if function is not None:
            result |= {f"{title}: {name}": value for name, value in _signature_defaults(function)}
    return result


def _function_of_the_package(called: ast.expr, known: dict[str, Any]) -> tuple[str, Any]:
    if isinstance(called, ast.Name):
        return called.id, known.get(called.id)
    if isinstance(called, ast.Attribute):
        owner = known.get(called.value.id) if isinstance(called.value, ast.Name) else None
        if owner is not None:
            return ast.unparse(called), getattr(owner, called.attr, None)
        if called.attr not in SAY_NOTHING:
            for kind in METHODS_OF:
                if inspect.isfunction(method := getattr(kind, called.attr, None)):
                    return f"{kind.__name__}.{called.attr}", method
    return "", None


def _signature_defaults(function: Any) -> Iterator[tuple[str, str]]:
    """Defaults that are a number, a text or a tuple of them; None says that something else decides."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return
    for parameter in parameters:
        if parameter.name != "seed" and parameter.default != () and _is_simple(parameter.default):
            yield parameter.name, repr(parameter.default)


def _is_simple(value: Any) -> bool:
    if isinstance(value, dict):
        return all(map(_is_simple, (*value.keys(), *value.values())))
    return all(map(_is_simple, value)) if isinstance(value, tuple) else isinstance(value, SIMPLE)
