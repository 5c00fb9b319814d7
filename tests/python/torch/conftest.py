# SPDX-License-Identifier: Apache-2.0
import pathlib
import sys

HERE = pathlib.Path(__file__).resolve().parent
TESTS = HERE.parents[1]
# tests/trainers has Megatron's models and their account of themselves; tests/e2e the small configs
sys.path[:0] = [str(HERE), str(TESTS / "trainers"), str(TESTS / "e2e")]
