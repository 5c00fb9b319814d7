# SPDX-License-Identifier: Apache-2.0
"""Modules of packages that are not installed."""
import importlib.machinery
import sys
import types


def module(name, **members):
    made = sys.modules.setdefault(name, types.ModuleType(name))
    made.__spec__ = importlib.machinery.ModuleSpec(name, None, is_package=True)
    made.__path__ = []
    vars(made).update(members)
    above, _, last = name.rpartition(".")
    if above:
        module(above)
        setattr(sys.modules[above], last, made)
    return made
