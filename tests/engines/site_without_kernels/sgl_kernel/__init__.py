# SPDX-License-Identifier: Apache-2.0
"""In place of SGLang's kernels, which only devices have and older releases import anywhere: every name is there, and nothing
runs."""
import importlib.abc
import importlib.util
import sys
import types

__path__ = []
__version__ = "0"


class Absent:
    def __init__(self, name):
        self._name = name

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return Absent(f"{self._name}.{name}")

    def __call__(self, *_, **__):
        raise RuntimeError(f"{self._name} was called, and there is no device")


class Module(types.ModuleType):
    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return Absent(f"{self.__name__}.{name}")


class Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    def find_spec(self, name, path, target=None):
        return importlib.util.spec_from_loader(name, self, is_package=True) if name.startswith("sgl_kernel.") else None

    def create_module(self, spec):
        return Module(spec.name)

    def exec_module(self, module):
        pass


sys.meta_path.insert(0, Finder())
sys.modules[__name__].__class__ = Module
