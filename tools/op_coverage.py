"""Which ops run on the device: samples of PyTorch's op_db against PyTorch CPU, worst first.

    python tools/op_coverage.py [--use op-inventory.tsv] [--dtypes float32,int64] [--match NAME]

For each op: `ok`, `fallback` (right, but through the CPU), `differs` (another value, dtype, shape),
or `fails` (an error that PyTorch CPU does not raise). With --use, a table with the columns `op` (an
overload, `aten.add.Tensor`) and `calls_total`, the ops that are used most come first.
"""

from __future__ import annotations

import argparse
import csv
import warnings
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch.testing._internal.common_methods_invocations import op_db
from torch.utils._pytree import tree_flatten, tree_map

import torch_neuronx

RANK = {"ok": 0, "fallback": 1, "differs": 2, "fails": 3}
RANDOM = (
    "rand",
    "bernoulli",
    "multinomial",
    "normal",
    "dropout",
    "uniform",
    "exponential",
    "empty",
)
TOLERANCE = {torch.bfloat16: 2e-2, torch.float16: 2e-3, torch.float32: 1e-4, torch.complex64: 1e-4}


def full_name(op: Any) -> str:
    return op.name + (f".{op.variant_test_name}" if op.variant_test_name else "")


def moved(value: Any) -> Any:
    """Tensors and devices inside `value` on the device, with the strides and storage they have."""

    def move(x: Any) -> Any:
        if isinstance(x, torch.Tensor):
            if x.layout != torch.strided:
                return x.to("neuron")
            whole = x.detach().untyped_storage().size() // x.element_size()
            flat = x.detach().as_strided((whole,), (1,), 0).to("neuron")
            return flat.as_strided(x.size(), x.stride(), x.storage_offset())
        return torch.device("neuron") if isinstance(x, torch.device) else x

    return tree_map(move, value)


def difference(actual: Any, expected: Any) -> str:
    """What is not as on the CPU, in a few words; empty if nothing."""
    got, want = tree_flatten(actual)[0], tree_flatten(expected)[0]
    if len(got) != len(want):
        return f"{len(got)} results instead of {len(want)}"
    for a, e in zip(got, want, strict=True):
        if not isinstance(e, torch.Tensor):
            continue
        if not isinstance(a, torch.Tensor):
            return f"{type(a).__name__} instead of a tensor"
        if a.dtype != e.dtype or a.shape != e.shape:
            return f"{a.dtype} {list(a.shape)} instead of {e.dtype} {list(e.shape)}"
        tolerance = TOLERANCE.get(e.dtype, 1e-7 if e.is_floating_point() else 0)
        host = a.cpu()
        if not torch.allclose(host, e, rtol=tolerance, atol=tolerance, equal_nan=True):
            return f"other values ({e.dtype})"
    return ""


def run(op: Any, dtype: torch.dtype, limit: int) -> tuple[str, str]:
    """The worst outcome of up to `limit` samples, and what was wrong."""
    worst, detail = "ok", ""
    torch_neuronx.clear_op_tracking()
    for number, sample in enumerate(op.sample_inputs("cpu", dtype, requires_grad=False)):
        if number == limit:
            break
        try:
            expected = op(sample.input, *sample.args, **sample.kwargs)
        except Exception:  # noqa: BLE001 (whatever the CPU refuses is no sample)
            continue
        try:
            args, kwargs = moved((sample.args, sample.kwargs))
            result = op(moved(sample.input), *args, **kwargs)
            wrong = "" if any(word in op.name for word in RANDOM) else difference(result, expected)
            outcome = "differs" if wrong else "ok"
        except Exception as error:  # noqa: BLE001
            outcome, wrong = "fails", f"{type(error).__name__}: {error}".splitlines()[0][:100]
        if RANK[outcome] > RANK[worst]:
            worst, detail = outcome, wrong
    fallbacks = sorted(torch_neuronx.get_fallback_ops())
    if fallbacks:
        detail = "; ".join(filter(None, [detail, "on the CPU: " + ", ".join(fallbacks)]))
        worst = "fallback" if worst == "ok" else worst
    return worst, detail


def uses(path: Path | None) -> dict[str, int]:
    """Calls by the op's name without namespace and overload."""
    counts: dict[str, int] = defaultdict(int)
    if path is not None:
        with path.open(newline="") as file:
            for row in csv.DictReader(file, delimiter="\t"):
                counts[row["op"].split(".")[1]] += int(row["calls_total"] or 0)
    return counts


def outcomes(options: argparse.Namespace) -> Iterator[tuple[str, str, str]]:
    for op in op_db:
        name = full_name(op)
        if options.match not in name:
            continue
        for dtype_name in options.dtypes.split(","):
            dtype = getattr(torch, dtype_name)
            if dtype in op.supported_dtypes("cpu"):
                outcome, detail = run(op, dtype, options.samples)
                yield name, outcome, f"{dtype_name}: {detail}" if detail else ""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--use", type=Path, help="table of calls, tab-separated")
    parser.add_argument("--dtypes", default="float32,bfloat16,int64")
    parser.add_argument("--match", default="", help="only ops with this in their names")
    parser.add_argument("--samples", type=int, default=4, help="per op and dtype")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    calls = uses(options.use)
    worst: dict[str, tuple[str, str]] = {}
    base = {full_name(op): op.name for op in op_db}
    for name, outcome, detail in outcomes(options):
        if name not in worst or RANK[outcome] > RANK[worst[name][0]]:
            worst[name] = (outcome, detail)

    def use(name: str) -> int:
        op = base[name]
        return calls.get(op.replace(".", "_"), 0) or calls.get(op.split(".")[-1], 0)

    for name in sorted(worst, key=lambda n: (-use(n), n)):
        outcome, detail = worst[name]
        if outcome != "ok":
            print(f"{outcome:9}{use(name):8}  {name:44}{detail}", flush=True)
    totals: dict[str, int] = defaultdict(int)
    for outcome, _ in worst.values():
        totals[outcome] += 1
    print("total:", ", ".join(f"{totals[key]} {key}" for key in RANK))


if __name__ == "__main__":
    main()
