"""A subgraph as an exported program of the inputs that vary, and how its results are made of its outputs."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import torch

from edgepack.errors import ModelError
from edgepack.programs.training import refuse_training
from edgepack.torch.interface import Interface, Result

__all__ = ["Captured", "captured", "varying"]

#: What the library takes and gives.
_DTYPES = {
    *(torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.bool),
    *(torch.int8, torch.int16, torch.int32, torch.int64, torch.uint8),
}


@dataclass(frozen=True)
class Captured:
    """A subgraph for certain sizes.

    Attributes:
        program: takes and returns tensors side by side.
        interface: which arguments it takes, and how the subgraph's results are made of its own.
        examples: of the arguments that it takes, with values that depend on nothing.
        expected: what PyTorch computes of the examples.
    """

    program: torch.export.ExportedProgram
    interface: Interface
    examples: tuple[torch.Tensor, ...]
    expected: tuple[torch.Tensor, ...]


class _OfVarying(torch.nn.Module):  # type: ignore[misc]
    """A subgraph as a module of the inputs that vary, which returns tensors of their own only."""

    def __init__(
        self, gm: torch.fx.GraphModule, args: list[Any], taken: Sequence[int], chosen: list[tuple[int, Any]]
    ) -> None:
        super().__init__()
        self.gm, self.taken, self.chosen = gm, tuple(taken), chosen
        self.fixed: list[Any] = list(args)
        for index, arg in enumerate(args):
            if isinstance(arg, torch.Tensor) and index not in self.taken:
                self.register_buffer(f"constant_{index}", arg)
                self.fixed[index] = None

    def forward(self, *varying: torch.Tensor) -> tuple[torch.Tensor, ...]:
        args = [getattr(self, f"constant_{i}", one) for i, one in enumerate(self.fixed)]
        for index, one in zip(self.taken, varying, strict=True):
            args[index] = one
        results = self.gm(*args)
        return tuple(
            results[index] if order is None else results[index].permute(order) for index, order in self.chosen
        )


def varying(gm: torch.fx.GraphModule, args: Sequence[Any], constants: Sequence[int]) -> tuple[int, ...]:
    """Which arguments of a subgraph a compiled one takes: tensors that are no constants and are read.

    Args:
        constants: which arguments are constants.

    Raises:
        ModelError: there is none, or a tensor is of a kind that no compiled model takes.
    """
    places = [node for node in gm.graph.nodes if node.op == "placeholder"]
    taken = []
    for index, (arg, node) in enumerate(zip(args, places, strict=True)):
        if isinstance(arg, torch.Tensor):
            _refuse_tensor(arg, node.name)
            if index not in constants and node.users:
                taken.append(index)
    if not taken:
        raise ModelError("it takes no tensor that varies")
    return tuple(taken)


def captured(gm: torch.fx.GraphModule, args: Sequence[Any], taken: Sequence[int], label: str) -> Captured:
    """Export a subgraph for the sizes of these arguments.

    Args:
        taken: which of them vary (:func:`varying`); the others are constants.
        label: of the subgraph, for messages.

    Raises:
        ModelError: why it has to stay as it is.
    """
    with torch.inference_mode(False), torch.no_grad():
        held = [arg.detach() if isinstance(arg, torch.Tensor) else arg for arg in args]
        for index in taken:
            held[index] = _example(args[index], index)
        chosen, given, results = _how_results_are_made(gm, args)
        module = _OfVarying(gm, held, taken, chosen)
        program = _exported(module, tuple(held[index] for index in taken), label)
        with torch.random.fork_rng(devices=[]):
            examples, expected = _expected(module, [held[index] for index in taken])
    return Captured(program, Interface(tuple(taken), given, results), examples, expected)


def _refuse_tensor(tensor: torch.Tensor, name: str) -> None:
    if type(tensor) not in (torch.Tensor, torch.nn.Parameter, torch.nn.Buffer):
        raise ModelError(f"its input {name} is a {type(tensor).__name__}")
    if tensor.device.type != "cpu":
        raise ModelError(f"its input {name} is on {tensor.device}, and edgepack runs here on the CPU")
    if tensor.layout is not torch.strided or tensor.dtype not in _DTYPES:
        raise ModelError(f"its input {name} is {tensor.dtype}, {tensor.layout}")
    if tensor.is_conj() or tensor.is_neg():
        raise ModelError(f"its input {name} is a lazily conjugated or negated view")


def _example(tensor: torch.Tensor, seed: int) -> torch.Tensor:
    """Values that are the same in every process, for what is compiled is found in the cache by them, and
    that say nothing of the user's: random numbers, True, or 0, which is an index of whatever it is one of."""
    if tensor.dtype.is_floating_point:
        generator = torch.Generator().manual_seed(seed)
        return torch.randn(tensor.shape, generator=generator).to(tensor.dtype)
    fill = tensor.dtype is torch.bool
    return torch.full(tensor.shape, fill, dtype=tensor.dtype)


def _expected(module: _OfVarying, given: list[torch.Tensor]) -> tuple[tuple[torch.Tensor, ...], Any]:
    """Examples, and what PyTorch computes of them. Integers are 1 instead of 0 where PyTorch takes that: a
    mask of 0 leaves attention nothing, of which PyTorch makes 0, and its exporter the mean of all."""
    chosen, expected = tuple(given), tuple(module(*(one.clone() for one in given)))
    for index, one in enumerate(given):
        if not one.dtype.is_floating_point and one.dtype is not torch.bool:
            tried = (*chosen[:index], torch.ones_like(one), *chosen[index + 1 :])
            with suppress(IndexError, RuntimeError):  # it is an index, and of one thing
                chosen, expected = tried, tuple(module(*(other.clone() for other in tried)))
    return chosen, expected


def _exported(module: _OfVarying, examples: tuple[torch.Tensor, ...], label: str) -> Any:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            program = torch.export.export(module, examples, strict=False)
            functional = program.run_decompositions({})
    except Exception as error:  # PyTorch's own, of many classes
        raise ModelError(f"torch.export cannot export it: {first_line(error)}") from error
    signature = functional.graph_signature
    written = [*signature.user_inputs_to_mutate.values(), *signature.buffers_to_mutate.values()]
    try:
        refuse_training(functional, label)
    except ModelError as error:
        said = error.message.partition(": ")[2].rstrip(".")
        raise ModelError(f"it is in training mode: {said}; model.eval() ends that") from error
    if written:
        raise ModelError(f"it writes to {len(written)} of its inputs, which a compiled model never does")
    for node in functional.graph.nodes:
        if torch.Tag.nondeterministic_seeded in getattr(node.target, "tags", ()) and not _drops_nothing(node):
            raise ModelError(f"{node.target} draws random numbers")
        if node.target is torch.ops.aten._local_scalar_dense.default:
            raise ModelError("it makes a number of a tensor, on which what follows depends")
    return program


def _drops_nothing(node: torch.fx.Node) -> bool:
    """Whether an operator that may draw random numbers does not: attention with a dropout of 0, recurrent
    layers that are not trained."""
    names = [one.name for one in node.target._schema.arguments]
    given = {**dict(zip(names, node.args, strict=False)), **node.kwargs}
    if "train" in names:
        return given.get("train") is False or given.get("dropout", 1.0) == 0.0
    return "dropout_p" in names and not given.get("dropout_p", 0.0)


def _how_results_are_made(gm: torch.fx.GraphModule, args: Sequence[Any]) -> tuple[Any, Any, Any]:
    """Which results are computed and in which order of axes, their shapes and dtypes, and how all results
    are made of them. Found with tensors that have sizes, strides and memory in common, but no values."""
    from torch._subclasses.fake_tensor import FakeTensorMode

    mode = FakeTensorMode(allow_non_fake_inputs=True)
    try:
        with mode:
            fakes = [_without_values(arg) if isinstance(arg, torch.Tensor) else arg for arg in args]
            results = gm(*fakes)
    except Exception as error:  # PyTorch's own, of many classes
        raise ModelError(f"its sizes depend on data: {first_line(error)}") from error
    if not isinstance(results, tuple | list):
        raise ModelError("its results are no tuple")
    lent = {_memory(fake): index for index, fake in enumerate(fakes) if isinstance(fake, torch.Tensor)}
    groups: dict[Any, list[int]] = {}
    made: list[Result] = []
    for index, result in enumerate(results):
        made.append(Result(value=None if isinstance(result, torch.Tensor) else result))
        if isinstance(result, torch.Tensor):
            if _memory(result) in lent:
                number = lent[_memory(result)]
                made[-1] = _of_argument(number, result, fakes[number])
                continue
            if result.dtype not in _DTYPES:
                raise ModelError(f"it returns {result.dtype}")
            groups.setdefault(_memory(result), []).append(index)
        elif result is not None and not isinstance(result, int | float | bool):
            raise ModelError(f"it returns a value of type {type(result).__name__}")
    if not groups:
        raise ModelError("it computes nothing: what it returns are its inputs, or views of them")
    chosen: list[tuple[int, tuple[int, ...] | None]] = []
    given: list[tuple[tuple[int, ...], torch.dtype]] = []
    for base, members in _bases(results, list(groups.values())):
        order = _order(results[base])
        shape = tuple(results[base].shape) if order is None else tuple(results[base].permute(order).shape)
        for index in members:
            made[index] = _result(len(chosen), results[index], results[index] is results[base], order)
        chosen.append((base, order))
        given.append((shape, results[base].dtype))
    return chosen, tuple(given), tuple(made)


def _of_argument(number: int, result: torch.Tensor, argument: torch.Tensor) -> Result:
    """A result that has the memory of an argument."""
    if result is argument:
        return Result(argument=number)
    if result.dtype != argument.dtype:
        raise ModelError("it returns a view of one of its inputs with another dtype")
    return Result(
        argument=number, view=(tuple(result.shape), tuple(result.stride()), int(result.storage_offset()))
    )


def _bases(
    results: Sequence[torch.Tensor], groups: Sequence[Sequence[int]]
) -> Iterator[tuple[int, Sequence[int]]]:
    """Which results are computed, each with those that are views of it.

    Args:
        groups: results that share memory. Where none is all of it and no two overlap (parts of a tensor that
            was split), each gets memory of its own.
    """
    for members in groups:
        base = next((i for i in members if _is_whole(results[i], alone=len(members) == 1)), None)
        if base is not None:
            yield base, members
        elif _overlap([results[index] for index in members]):
            raise ModelError("its results are views of memory that it does not return")
        else:
            yield from ((index, [index]) for index in members)


def _overlap(tensors: Sequence[torch.Tensor]) -> bool:
    """Whether an element of these, which share memory but have no values, is one of another's too."""
    from torch._subclasses.fake_tensor import unset_fake_temporarily

    with unset_fake_temporarily():
        one = tensors[0]
        seen = torch.zeros(one.untyped_storage().nbytes() // one.element_size(), dtype=torch.int8)
        for tensor in tensors:
            if tensor.dtype != one.dtype or 0 in tensor.stride():
                return True
            part = seen.as_strided(tensor.shape, tensor.stride(), int(tensor.storage_offset()))
            if bool(part.any()):
                return True
            part.fill_(1)
    return False


def _without_values(tensor: torch.Tensor) -> torch.Tensor:
    return torch.empty_strided(tensor.size(), tensor.stride(), dtype=tensor.dtype)


def _memory(tensor: torch.Tensor) -> Any:
    return tensor.untyped_storage()._cdata


def _order(tensor: torch.Tensor) -> tuple[int, ...] | None:
    """The axes as they lie in memory, of a tensor that fills it in another order than its own; None where it
    is contiguous, or has gaps."""
    if tensor.is_contiguous():
        return None
    strides = tensor.stride()
    order = tuple(sorted(range(tensor.dim()), key=lambda axis: (-strides[axis], axis)))
    return order if tensor.permute(order).is_contiguous() else None


def _is_whole(tensor: torch.Tensor, *, alone: bool) -> bool:
    """Whether a tensor is all of its memory; one that no other result shares memory with need not be."""
    order = _order(tensor)
    filled = tensor.is_contiguous() or order is not None
    bytes_of = tensor.numel() * tensor.element_size()
    return alone or (filled and not tensor.storage_offset() and bytes_of == tensor.untyped_storage().nbytes())


def _result(number: int, result: torch.Tensor, is_base: bool, order: tuple[int, ...] | None) -> Result:
    if is_base:
        inverse = None if order is None else tuple(order.index(axis) for axis in range(len(order)))
        return Result(number, order=inverse)
    return Result(number, view=(tuple(result.shape), tuple(result.stride()), int(result.storage_offset())))


def first_line(error: BaseException) -> str:
    """Of what an exception says."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[0].rstrip(".") if lines else type(error).__name__
