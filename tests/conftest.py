"""Every test session has its own cache of executables, so that counts of compiles mean something."""

from __future__ import annotations

import os
import tempfile

# Before torch is imported: the variables are read once.
os.environ.setdefault("TORCH_NEURONX_NEFF_CACHE_DIR", tempfile.mkdtemp(prefix="neff-tests-"))
os.environ.setdefault("HF_HUB_OFFLINE", "1")
