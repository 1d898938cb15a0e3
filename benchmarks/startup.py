"""CPU time of the commands that need no torch, as a share of `import torch`, in one run.

python benchmarks/startup.py
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

REPEATS = 5
ALLOWED = 0.25  # of `import torch`


def cpu_seconds(command: Sequence[str]) -> float:
    """User and system time of one run of the command."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main() -> None:
    graphforget = [sys.executable, "-m", "graphforget"]
    with tempfile.TemporaryDirectory() as folder:
        run, request = Path(folder) / "run", Path(folder) / "request.json"
        request.write_text(json.dumps({"nodes": ["patient-0017"]}))
        for arguments in (["train", "--out", str(run)], ["unlearn", str(run), str(request), "--in-place"]):
            subprocess.run([*graphforget, *arguments], check=True, stdout=subprocess.DEVNULL)
        commands = {
            "--help": ["--help"],
            "--version": ["--version"],
            "methods": ["methods"],
            "ledger": ["ledger", str(run)],
            "keygen": ["keygen"],
        }
        seconds: dict[str, list[float]] = {name: [] for name in ("import torch", *commands)}
        for repeat in range(REPEATS):
            seconds["import torch"].append(cpu_seconds([sys.executable, "-c", "import torch"]))
            for name, arguments in commands.items():
                place = [str(Path(folder) / f"key-{repeat}")] if name == "keygen" else []
                seconds[name].append(cpu_seconds([*graphforget, *arguments, *place]))
    least = {name: min(times) for name, times in seconds.items()}
    for name, time in least.items():
        print(f"{name:14} {time:6.3f} s  {time / least['import torch']:.3f} of import torch")
    if max(time for name, time in least.items() if name != "import torch") > ALLOWED * least["import torch"]:
        sys.exit(f"a command takes more than {ALLOWED} of import torch")


if __name__ == "__main__":
    main()
