"""An exported subgraph, packed for this machine and opened in this process."""

from __future__ import annotations

import atexit
import itertools
import os
import warnings
from collections.abc import Sequence
from contextlib import ExitStack
from functools import cache
from pathlib import Path
from typing import Any

import torch

from edgepack.api import load, pack
from edgepack.bundle.layout import MANIFEST
from edgepack.client.session import Session
from edgepack.commands.compiled_targets import tuned_for
from edgepack.commands.tuned_choices import TakenChoices
from edgepack.config.device import Device, load_device
from edgepack.config.tuned import TunedFile, write_tuned
from edgepack.errors import EdgepackWarning, ModelError
from edgepack.options import PackOptions, PathLike
from edgepack.programs.onnx_program import onnx_program, quiet
from edgepack.system.files import list_files
from edgepack.system.temporary import temporary_folder
from edgepack.torch.capture import Captured, captured, varying
from edgepack.torch.interface import Interface
from edgepack.torch.kept import SubgraphCache, key_of
from edgepack.torch.options import CompileOptions
from edgepack.torch.scheduler import say_once

__all__ = ["Compiled", "compiled"]

#: How far results may be off those of PyTorch's, by the largest: a mistake of an exporter is far more.
_OFF, _OFF_ROUNDED = 1e-3, 5e-2
#: Stands for the memory of tensors without elements, of which PyTorch says that it is at 0.
_NOTHING = torch.empty(16)
_empty = torch.empty
_numbers = itertools.count()


class Compiled:
    """Runs a subgraph for certain sizes, in any thread. Inputs that are contiguous are not copied; results
    are new tensors that the library writes to.

    Args:
        session: of its library.
        interface: what the library takes and gives.
        constants: the subgraph's tensors that are constants of the library.
    """

    def __init__(self, session: Session, interface: Interface, constants: Sequence[torch.Tensor]) -> None:
        self._session = session
        self._inputs = tuple(int(one.name[1:]) for one in session.inputs)
        if not set(self._inputs) <= set(interface.taken):
            raise ModelError(f"its inputs are called {', '.join(one.name for one in session.inputs)}")
        outputs = [(one.name, tuple(one.shape), one.dtype) for one in session.outputs]
        if outputs != [(f"y{index}", *_named(one)) for index, one in enumerate(interface.given)]:
            raise ModelError(f"its results are {', '.join(map(str, outputs))}")
        self._given = interface.given
        self._results = tuple(one.maker() for one in interface.results)
        self._constants = tuple(constants)  # as long as they are there, no other tensor has their identity

    def __call__(self, args: Sequence[Any]) -> tuple[Any, ...]:
        """The subgraph's results, of all its arguments."""
        computed = self.compute(args)
        return tuple([make(computed, args) for make in self._results])

    def compute(self, args: Sequence[Any]) -> list[torch.Tensor]:
        """The library's results, of all the subgraph's arguments, which have the sizes and dtypes that it
        was compiled for."""
        addresses, copies = [], []
        for index in self._inputs:
            tensor = args[index]
            if not tensor.is_contiguous():
                copies.append(tensor := tensor.contiguous())
            address = tensor.data_ptr()
            if address % tensor.element_size():
                copies.append(tensor := tensor.clone())
                address = tensor.data_ptr()
            addresses.append(address or _NOTHING.data_ptr())
        computed = [_empty(shape, dtype=dtype, device="cpu") for shape, dtype in self._given]
        addresses += [one.data_ptr() or _NOTHING.data_ptr() for one in computed]
        self._session.run_at(addresses)
        del copies  # not sooner
        return computed


def _named(given: tuple[tuple[int, ...], torch.dtype]) -> tuple[tuple[int, ...], str]:
    """Shape and dtype, as the library names it."""
    shape, dtype = given
    return shape, str(dtype).removeprefix("torch.")


def compiled(
    gm: torch.fx.GraphModule,
    args: Sequence[Any],
    constants: Sequence[int],
    label: str,
    options: CompileOptions,
) -> Compiled:
    """A subgraph for the sizes of these arguments: from the cache, or packed.

    Args:
        constants: which arguments are constants.
        label: of the subgraph, for messages.

    Raises:
        ModelError, ToolchainError, CheckFailedError, InternalError: why it cannot be compiled.
        ConfigError: an option does not fit this machine.
    """
    taken, tuned = varying(gm, args, constants), _tuned(options)
    threads = options.threads or torch.get_num_threads()

    def opened(bundle: Path, interface: Interface) -> Compiled:
        return Compiled(load(bundle, threads=threads), interface, [args[index] for index in constants])

    def packed() -> Compiled:
        program = captured(gm, args, taken, label)
        bundle = _packed(program, options, tuned)
        made = opened(bundle, program.interface)
        _check(made, program, args, rounded=bool(options.of_numbers()))
        kept.keep(bundle, program.interface)
        return made

    decide = {**options.packing(), **({"tuned": tuned.record.model_dump()} if tuned.record else {})}
    kept = SubgraphCache(key_of(gm, args, constants, _device(), decide))
    if found := kept.opened(opened):
        return found
    with kept.reserved():
        try:
            return kept.opened(opened) or packed()
        except ModelError as error:
            kept.refuse(error.message)
            raise


def _tuned(options: CompileOptions) -> TakenChoices:
    """The tuned schedules for this machine, read now; that there are none is said once."""
    found = tuned_for([_device()], PackOptions(tuned=options.tuned))
    if found.warning:
        say_once(found.warning)
    return found


def _packed(captured: Captured, options: CompileOptions, tuned: TakenChoices) -> Path:
    """A bundle with what is needed to run a subgraph in this process."""
    names = [f"x{index}" for index in captured.interface.taken]
    results = [f"y{index}" for index in range(len(captured.interface.given))]
    with torch.inference_mode(False), torch.no_grad():
        model = onnx_program(captured.program, names, results, "it")
        with quiet():
            proto = model.model_proto
    _forget_where(proto)
    folder = _folder() / f"{next(_numbers)}"
    choices: list[PathLike] = []
    if tuned.choices:  # as they were read, whatever the user's files hold by now
        choices = [folder.with_suffix(".json")]
        write_tuned(folder.with_suffix(".json"), TunedFile(tuned.choices))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", EdgepackWarning)
        bundle = pack(proto, _device(), folder, name="subgraph", tuned=choices, **options.packing())
    artifact, params = bundle.manifest.artifact("shared"), bundle.manifest.params.file
    needed = {MANIFEST, artifact.path if artifact else "", params or ""}
    for name in list_files(folder):
        if name not in needed:
            (folder / name).unlink()
    return folder


def _check(found: Compiled, captured: Captured, args: Sequence[Any], *, rounded: bool) -> None:
    """Raise ModelError where the library computes something else than PyTorch: an exporter's mistake."""
    given = list(args)
    for index, example in zip(captured.interface.taken, captured.examples, strict=True):
        given[index] = example
    with torch.inference_mode(False), torch.no_grad():
        computed = found.compute(given)
        for one, other in zip(computed, captured.expected, strict=True):
            if one.shape != other.shape or one.dtype != other.dtype or not one.numel():
                if one.shape == other.shape and one.dtype == other.dtype:
                    continue
                raise ModelError("the exported model gives results of other sizes")
            if one.dtype.is_floating_point:
                both = one.isfinite() & other.isfinite()
                known, wanted = one[both].double(), other[both].double()
                least = max(torch.finfo(one.dtype).eps * 32, _OFF_ROUNDED if rounded else _OFF)
                off = float((known - wanted).abs().max()) if known.numel() else 0.0
                largest = float(wanted.abs().max()) if known.numel() else 0.0
                wrong = off > least * (1 + largest)
            else:
                wrong = int((one != other).sum()) > max(1, one.numel() // 50)
            if wrong:
                raise ModelError("the exported model computes something else than PyTorch")


def _forget_where(proto: Any) -> None:
    """Leave out which lines of Python operators come from: the cache finds the same model by its bytes."""
    graphs = [proto.graph, *proto.functions]
    for graph in graphs:
        del graph.metadata_props[:]
        for node in graph.node:
            del node.metadata_props[:]
            node.doc_string = ""
        for value in (*graph.value_info, *getattr(graph, "input", ()), *getattr(graph, "initializer", ())):
            if hasattr(value, "metadata_props"):
                del value.metadata_props[:]
    del proto.metadata_props[:]


@cache
def _device() -> Device:
    """This machine, of whose bundle nothing but the library is needed."""
    return load_device("host").model_copy(update={"artifacts": ("shared",)})


@cache
def _folder() -> Path:
    """Where this process has its libraries; removed when it ends."""
    held, owner = ExitStack(), os.getpid()

    def leave() -> None:
        if os.getpid() == owner:  # no child of a fork
            held.close()

    folder = held.enter_context(temporary_folder())
    atexit.register(leave)
    return folder
