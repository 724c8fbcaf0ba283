"""``python -m torch_neuronx``: see :mod:`torch_neuronx.cli`."""

from __future__ import annotations

import sys

from torch_neuronx.cli.main import main

sys.exit(main())
