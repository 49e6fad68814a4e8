"""Libraries of subgraphs in edgepack's cache, found by the subgraph itself: a process that finds one exports
nothing, and starts no compiler.

The key is over all that decides what a library computes: the subgraph (``canonical.py``), the sizes of what
varies and the values of what is constant, PyTorch's state, the options, this machine's CPU, edgepack's own
files, and the versions of all packages that take part. What was found to have no library is kept too.
An entry holds ``subgraph.json`` and, where there is a library, the folder ``bundle``. It was compared with
PyTorch before it was stored.
"""

from __future__ import annotations

import json
import logging
import shutil
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, TypeVar

import torch

from edgepack.config.device import Device
from edgepack.errors import EdgepackError, ModelError
from edgepack.pipeline.cache import Cache, subgraph_key
from edgepack.system.paths import cache_dir
from edgepack.system.temporary import temporary_folder
from edgepack.torch.canonical import UnknownError, digests, graph_data, tensor_layout, torch_state
from edgepack.torch.interface import Interface

__all__ = ["SubgraphCache", "key_of"]

Opened = TypeVar("Opened")
_LOG = logging.getLogger("edgepack.torch")
#: Of an entry.
_RECORD, _BUNDLE = "subgraph.json", "bundle"
#: Packages of the exporter, beside PyTorch.
_EXPORTER = ("onnxscript", "onnx-ir", "onnx", "ml-dtypes")


def key_of(
    gm: torch.fx.GraphModule, args: Sequence[Any], constants: Sequence[int], device: Device, options: Any
) -> str:
    """What names a subgraph's library in the cache; "" where it cannot be named (the reason is logged).

    Args:
        constants: which arguments are constants.
        options: of the pack, as plain data.
    """
    try:
        graph, state = graph_data(gm), torch_state()
    except UnknownError as error:
        _LOG.info("a subgraph is not looked for in the cache: it has %s", error)
        return ""
    held = [args[index] for index in constants]
    return subgraph_key(
        {
            "graph": graph,
            "arguments": [_argument(one) for one in args],
            "constants": dict(zip(map(str, constants), digests(held), strict=True)),
            "state": state,
            "options": options,
            "device": device.model_dump(mode="json"),
            "pytorch": _pytorch(),
        }
    )


def _argument(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return tensor_layout(value)
    return [type(value).__name__, repr(value)]


@cache
def _pytorch() -> dict[str, str]:
    """Versions of PyTorch and of its exporter."""
    found = {"torch": torch.__version__, "commit": str(torch.version.git_version)}
    for package in _EXPORTER:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            found[package] = ""
    return found


class SubgraphCache:
    """The entry of one subgraph.

    Args:
        key: its :func:`key_of`; "" for one that is not kept.
    """

    def __init__(self, key: str) -> None:
        self._key = key
        self._cache = _cache(cache_dir())

    def opened(self, load: Callable[[Path, Interface], Opened]) -> Opened | None:
        """What ``load`` makes of the library's bundle; None where there is none, or it does not load here.

        Raises:
            ModelError: it is known that there is no library, and why.
        """
        with self._cache.opened(self._key) if self._key else nullcontext() as folder:
            if folder is None:
                return None
            try:
                record = json.loads((folder / _RECORD).read_text(encoding="utf-8"))
                refused = record["refused"]
                if not refused:
                    return load(folder / _BUNDLE, Interface.from_json(record["interface"]))
            except (EdgepackError, OSError, ValueError, TypeError, LookupError, AttributeError) as error:
                _LOG.info("an entry of the cache is of no use here, and is made again: %s", error)
                self._cache.forget(self._key)
                return None
        raise ModelError(refused)

    def reserved(self) -> AbstractContextManager[None]:
        """In the body the entry is made, by no two processes at once."""
        return self._cache.reserved(self._key, lambda _stage, _detail: None) if self._key else nullcontext()

    def keep(self, bundle: Path, interface: Interface) -> None:
        """Keep a library, where it can be."""
        self._store(bundle, {"refused": "", "interface": interface.to_json()})

    def refuse(self, reason: str) -> None:
        """Keep why there is none."""
        self._store(None, {"refused": reason})

    def _store(self, bundle: Path | None, record: dict[str, Any]) -> None:
        if not self._key:
            return
        with temporary_folder() as folder:
            entry = folder / "entry"
            entry.mkdir()
            if bundle is not None:
                shutil.copytree(bundle, entry / _BUNDLE)
            (entry / _RECORD).write_text(json.dumps(record), encoding="utf-8")
            self._cache.store(self._key, entry)


@cache
def _cache(_place: Path) -> Cache:
    """One for all subgraphs, so that what is wrong with it is said once."""
    return Cache()
