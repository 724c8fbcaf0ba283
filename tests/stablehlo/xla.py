"""XLA's CPU client, to which StableHLO text is given as it is: the parser and the oracle.

``jaxlib`` holds XLA, ``jax`` makes its arrays. Where they are not installed the tests are skipped.
"""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import pytest
import torch

from torch_neuronx import _C

os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
REASON = "XLA is not installed: pip install -r requirements/test.txt"
jax: Any = pytest.importorskip("jax", reason=REASON)
xla_client: Any = pytest.importorskip("jaxlib.xla_client", reason=REASON)
ml_dtypes: Any = pytest.importorskip("ml_dtypes", reason=REASON)
jax.config.update("jax_enable_x64", True)

NUMPY = {
    "b8": np.dtype(np.bool_),
    "u8": np.dtype(np.uint8),
    "i8": np.dtype(np.int8),
    "u16": np.dtype(np.uint16),
    "i16": np.dtype(np.int16),
    "u32": np.dtype(np.uint32),
    "i32": np.dtype(np.int32),
    "u64": np.dtype(np.uint64),
    "i64": np.dtype(np.int64),
    "f16": np.dtype(np.float16),
    "bf16": np.dtype(ml_dtypes.bfloat16),
    "f32": np.dtype(np.float32),
    "f64": np.dtype(np.float64),
    "c64": np.dtype(np.complex64),
    "c128": np.dtype(np.complex128),
}


def _options(replicas: int) -> Any:
    options = xla_client.CompileOptions()
    options.num_replicas = replicas
    options.executable_build_options.num_replicas = replicas
    # Otherwise XLA leaves out roundings to half precision between operations, which the host has.
    options.env_option_overrides = [("xla_allow_excess_precision", "False")]
    return options


def compile(text: str, replicas: int = 1) -> Any:
    """Raises what XLA says of text that it cannot parse or compile."""
    devices = jax.devices("cpu")[:replicas]
    # The list of devices keeps their client alive, and the other way round.
    return devices[0].client.compile_and_load(
        text, xla_client.DeviceList(tuple(devices)), _options(replicas)
    )


def run(text: str, inputs: list[np.ndarray]) -> list[np.ndarray]:
    """The results of @main for these arguments, which XLA must accept as they are."""
    device = jax.devices("cpu")[0]
    arrays = [jax.device_put(x, device) for x in inputs]
    for array, x in zip(arrays, inputs, strict=True):
        assert array.dtype == x.dtype
    results = compile(text).execute_sharded(arrays).disassemble_into_single_device_arrays()
    return [np.asarray(parts[0]) for parts in results]


def run_on_host(
    graph: str, inputs: list[np.ndarray], scalars: list[float | int], outputs: list[np.ndarray]
) -> None:
    """Runs the IR on the host platform's compiler, which writes ``outputs``."""
    words = [
        int(np.array(s, np.float64).view(np.uint64)) if isinstance(s, float) else s & (2**64 - 1)
        for s in scalars
    ]
    addresses = [x.ctypes.data for x in [*inputs, *outputs]]
    _C.compiler.run(graph, addresses, words)


def to_numpy(tensor: torch.Tensor) -> np.ndarray:
    tensor = tensor.detach().cpu().contiguous()
    if tensor.dtype == torch.bfloat16:
        return tensor.view(torch.int16).numpy().view(ml_dtypes.bfloat16)
    return tensor.numpy()


def to_torch(array: np.ndarray) -> torch.Tensor:
    array = np.ascontiguousarray(array).copy()
    if array.dtype == ml_dtypes.bfloat16:
        return torch.from_numpy(array.view(np.int16)).view(torch.bfloat16)
    return torch.from_numpy(array)
