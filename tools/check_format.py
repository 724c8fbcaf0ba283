"""Checks (or with --fix makes) the format of the C++ sources with the pinned clang-format."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def main() -> int:
    files = sorted(str(f) for pattern in ("*.cc", "*.h") for f in (ROOT / "csrc").rglob(pattern))
    tool = Path(sys.executable).parent / "clang-format"
    command = [str(tool), "-i"] if "--fix" in sys.argv else [str(tool), "--dry-run", "--Werror"]
    return subprocess.run(command + files, cwd=ROOT, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
