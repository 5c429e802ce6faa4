"""No module hides what its package exports: importing a submodule sets an attribute of the package."""

from __future__ import annotations

import importlib
import pkgutil

import edgespec


def test_no_submodule_has_the_name_of_an_export() -> None:
    for package in [edgespec, *_packages()]:
        modules = {module.name for module in pkgutil.iter_modules(package.__path__)}
        exported = set(getattr(package, "__all__", ())) - {"errors", "events"}
        assert not modules & exported, package.__name__


def _packages() -> list:
    found = pkgutil.walk_packages(edgespec.__path__, "edgespec.")
    return [importlib.import_module(module.name) for module in found if module.ispkg]
