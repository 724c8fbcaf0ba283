"""A rank that runs one piece of code after another: starting processes costs more than most checks.

Each line of standard input is a JSON string of code, run in a namespace of its own with ``torch``,
``dist``, ``rank`` and ``size``. The answer, on the file descriptor of the first argument, is a line
of JSON: what it printed and the traceback of its failure.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import sys
import traceback
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist


def answer(code: str, names: dict[str, Any]) -> dict[str, str | None]:
    out = io.StringIO()
    error = None
    with contextlib.redirect_stdout(out):
        try:
            exec(compile(code, "<check>", "exec"), names)
        except BaseException:
            error = traceback.format_exc()
    return {"stdout": out.getvalue(), "error": error}


def main() -> None:
    answers = os.fdopen(int(sys.argv[1]), "w", buffering=1)
    rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    dist.init_process_group(
        "neuron",
        init_method="file://" + os.environ["STORE"],
        rank=rank,
        world_size=size,
        timeout=timedelta(seconds=60),
    )
    for line in sys.stdin:
        names = {"torch": torch, "dist": dist, "rank": rank, "size": size, "timedelta": timedelta}
        result = answer(json.loads(line), names)
        answers.write(json.dumps(result) + "\n")
        del names
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
