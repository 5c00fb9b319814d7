# SPDX-License-Identifier: Apache-2.0
"""Imported first: what is missing here is said in one line, and before anything runs."""
import importlib.util
import sys

missing = [name for name in ("torch", "transformers", "matplotlib", "weft") if importlib.util.find_spec(name) is None]
if missing:
    sys.exit(f"run.py: {sys.executable} has no {', '.join(missing)}. `./bootstrap rl` sets all of it up; by hand: pip install "
             "torch transformers matplotlib, and for weft pip install . in the repository")
