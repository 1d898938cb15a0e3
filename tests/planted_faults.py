"""Plants faults in a copy of the package, one at a time, and shows that the tests catch every one.

    python tests/planted_faults.py            # all of planted_faults.txt, about fifteen minutes on two cores
    python tests/planted_faults.py 3 17       # some of them, by number

The list has one line a fault: the file, the change, and the tests that are to catch it.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
LIST = Path(__file__).with_suffix(".txt")


@dataclass(frozen=True)
class Fault:
    number: int
    file: str  # below src/graphforget
    old: str
    new: str
    tests: str  # below tests

    def planted(self, text: str) -> str:
        """The file's text with the fault. What is to be changed stands there exactly once."""
        if text.count(self.old) != 1:
            raise ValueError(f"fault {self.number}: {self.old!r} stands {text.count(self.old)} times in {self.file}")
        return text.replace(self.old, self.new)


def read_faults() -> list[Fault]:
    lines = [line for line in LIST.read_text().splitlines() if line and not line.startswith("#")]
    faults = []
    for number, line in enumerate(lines, start=1):
        file, change, tests = line.split(" :: ")
        old, new = change.split(" => ")
        faults.append(Fault(number, file, old, new, tests))
    return faults


def is_caught(fault: Fault) -> bool:
    """Whether the tests fail on a copy of the package that has the fault."""
    with tempfile.TemporaryDirectory(prefix="graphforget-fault-") as folder:
        source = Path(folder) / "src"
        shutil.copytree(ROOT / "src", source, ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
        file = source / "graphforget" / fault.file
        file.write_text(fault.planted(file.read_text()))
        tests = [str(ROOT / "tests" / name) for name in fault.tests.split()]
        command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", "-m", "not long", *tests]
        environment = os.environ | {"PYTHONPATH": str(source), "OMP_NUM_THREADS": "1", "PYTHONDONTWRITEBYTECODE": "1"}
        ran = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    failed = "\nFAILED " in ran.stdout
    if failed == (ran.returncode == 0):
        raise RuntimeError(f"fault {fault.number}: the tests did not run\n{ran.stdout[-2000:]}{ran.stderr[-2000:]}")
    return failed


def main() -> None:
    wanted = {int(number) for number in sys.argv[1:]}
    faults = [fault for fault in read_faults() if not wanted or fault.number in wanted]
    missed = []
    for fault in faults:
        caught = is_caught(fault)
        missed += [] if caught else [fault.number]
        print(
            f"{fault.number:2} {'caught' if caught else 'MISSED'}  {fault.file}: {fault.old} => {fault.new}", flush=True
        )
    print(f"{len(faults) - len(missed)} of {len(faults)} faults are caught")
    if missed:
        sys.exit(1)


if __name__ == "__main__":
    main()
