"""Versions of the packages that take part in a pack, read without importing them."""

from __future__ import annotations

import platform
import re
import sys
from functools import cache
from importlib.metadata import PackageNotFoundError, requires, version

from edgepack.pipeline.sources import imported_names, task_sources
from edgepack.registry import FRONTENDS
from edgepack.system.apple_metal import metal_version
from edgepack.version import __version__

__all__ = ["package_versions", "tool_versions"]

#: The packages that may have NVRTC, which is loaded and not imported.
_NVRTC = ("nvidia-cuda-nvrtc", "nvidia-cuda-nvrtc-cu11", "nvidia-cuda-nvrtc-cu12")

#: Packages whose modules are not called as they are.
_PACKAGES = {"google": "protobuf", "tvm": "apache-tvm", "tvm_ffi": "apache-tvm-ffi", "yaml": "pyyaml"}


def tool_versions(gpu: str = "") -> dict[str, str]:
    """Versions of what made a bundle, as its manifest names them.

    Args:
        gpu: by what a GPU is driven that it has kernels for.
    """
    versions = {"edgepack": __version__}
    for package in ("apache-tvm", "numpy", "onnx", "onnxruntime"):
        versions[package] = _version(package) or "none"
    return versions | _gpu_versions(gpu)


def package_versions(task: str, frontend: str = "", gpu: str = "") -> dict[str, str]:
    """Versions of all that decides on the results of a task: Python, each package that edgepack's sources of
    this task may import, and the packages that these and the frontend's own require, where installed.

    Args:
        task: as for :func:`edgepack.pipeline.sources.source_digest`.
        frontend: name of what reads the model.
        gpu: by what a GPU is driven that there are kernels for.
    """
    versions = {"edgepack": __version__, "python": platform.python_version()}
    todo = [*_imported_packages(task, frontend), *FRONTENDS.origin(frontend).split()[:1]]
    while todo:
        package = _normal(todo.pop())
        if package not in versions and (found := _version(package)):
            versions[package] = found
            todo += _required(package)
    return dict(sorted((versions | _gpu_versions(gpu)).items()))


def _gpu_versions(gpu: str) -> dict[str, str]:
    if gpu == "cuda":
        return {package: found for package in _NVRTC if (found := _version(package))}
    if gpu == "metal" and (found := metal_version()):
        return {"metal": found}
    return {}


@cache
def _imported_packages(task: str, frontend: str) -> tuple[str, ...]:
    names = {name.partition(".")[0] for file in task_sources(task, frontend) for name in imported_names(file)}
    others = names - sys.stdlib_module_names - {"edgepack"}
    return tuple(sorted(_PACKAGES.get(name, name) for name in others))


@cache
def _required(package: str) -> tuple[str, ...]:
    """What a package requires, but for its extras."""
    found = [one for one in requires(package) or () if "extra ==" not in one.partition(";")[2]]
    return tuple(re.split(r"[^\w.-]", one, maxsplit=1)[0] for one in found)


def _normal(package: str) -> str:
    return re.sub(r"[-_.]+", "-", package).lower()


@cache
def _version(package: str) -> str:
    """The version of an installed package; "" where it is not installed."""
    try:
        return version(package)
    except PackageNotFoundError:
        return ""
