"""Quantised programs: which there are, and their scales that are computed at run time, as arithmetic.

PT2E's operators are ``quantized_decomposed`` (torch/ao/quantization/fx/_decomposed.py), torchao's are its
affine ones (torchao/quantization/quant_primitives.py). What becomes of them is in
:mod:`edgepack.programs.quantised_onnx`.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from edgepack.errors import ModelError

if TYPE_CHECKING:
    import torch
    from torch.export import ExportedProgram

__all__ = [
    "define_operators",
    "has_wrapped_tensors",
    "is_quantised",
    "library_of",
    "of_plain_tensors",
    "written_out",
]


def _of_pt2e() -> None:
    import torch.ao.quantization.fx._decomposed  # noqa: F401


def _of_torchao() -> None:
    import torchao.quantization.quant_primitives  # noqa: F401


#: By what stands before ``::`` in an operator's name: what defines them, and its package.
_LIBRARIES = {"quantized_decomposed": (_of_pt2e, "torch"), "torchao": (_of_torchao, "torchao")}


def define_operators(libraries: Iterable[str], where: str) -> None:
    """Make PyTorch know the operators that a program calls.

    Args:
        libraries: what stands before ``::`` in their names; others than PT2E's and torchao's are left.
        where: of the program, for messages.

    Raises:
        ModelError: the package that defines them is not installed.
    """
    for library in sorted(set(libraries) & set(_LIBRARIES)):
        define, package = _LIBRARIES[library]
        try:
            define()
        except ImportError as error:
            raise ModelError(
                f"{where} has operators of {library}, which the package {package} defines, and it is not "
                "installed here, or does not fit the installed PyTorch.",
                hint=f"pip install {package}",
                detail=str(error),
            ) from error


def library_of(node: torch.fx.Node) -> str:
    """What stands before ``::`` in the name of a node's operator (``aten``); "" for a function."""
    return str(getattr(node.target, "namespace", ""))


def is_quantised(program: ExportedProgram) -> bool:
    """Whether a program calls an operator of PT2E or torchao, or a product of int8 matrices."""
    calls = [node for node in program.graph.nodes if node.op == "call_function"]
    return any(library_of(node) in _LIBRARIES or _is_integer_product(node) for node in calls)


def _is_integer_product(node: torch.fx.Node) -> bool:
    return library_of(node) == "aten" and getattr(node.target, "_opname", "") == "_int_mm"


def has_wrapped_tensors(tensors: Iterable[torch.Tensor]) -> bool:
    """Whether one is of a class that wraps others, as torchao's are."""
    from torch.utils._python_dispatch import is_traceable_wrapper_subclass

    return any(is_traceable_wrapper_subclass(one) for one in tensors)


def of_plain_tensors(module: torch.nn.Module) -> torch.nn.Module:
    """A module whose parameters are tensors of PyTorch's own, which a file holds without pickling.

    torchao's ``quantize_`` makes parameters of classes of its own, which hold integers and scales. A copy has
    these as parameters of their own; a module without such classes is returned as it is.
    """
    if not has_wrapped_tensors(module.parameters()):
        return module
    from torch._functorch._aot_autograd.subclass_parametrization import unwrap_tensor_subclass_parameters

    plain: torch.nn.Module = unwrap_tensor_subclass_parameters(copy.deepcopy(module))
    return plain


def written_out(program: ExportedProgram) -> ExportedProgram:
    """The program with the operators that choose scales at run time as arithmetic, and convolutions as traced
    TorchScript has them as those of modules; nothing else changes."""
    import torch

    table: dict[Any, Callable[..., Any]] = dict.fromkeys(
        (torch.ops.aten._convolution.default, torch.ops.aten._convolution.deprecated), _convolution
    )
    for library, name, function in (
        ("quantized_decomposed", "choose_qparams", _choose_for_tensor),
        ("quantized_decomposed", "choose_qparams_symmetric", _choose_symmetric),
        ("quantized_decomposed", "choose_qparams_per_token", _choose_for_tokens),
        ("quantized_decomposed", "choose_qparams_per_token_asymmetric", _choose_asymmetric_for_tokens),
        ("quantized_decomposed", "_choose_qparams_per_token_asymmetric_impl", _choose_asymmetric_for_tokens),
        ("torchao", "choose_qparams_affine", _choose_affine),
    ):
        packet = getattr(getattr(torch.ops, library), name, None)
        if packet is not None:
            table |= {getattr(packet, overload): function for overload in packet.overloads()}
    if not any(node.target in table for node in program.graph.nodes):
        return program
    return program.run_decompositions(table)


def _convolution(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None, *more: Any) -> Any:
    """``aten::_convolution``, whose last arguments choose a kernel of cuDNN."""
    import torch

    return torch.ops.aten.convolution.default(x, weight, bias, *more[:6])


def _choose_for_tensor(x: torch.Tensor, least: int, most: int, eps: float, dtype: torch.dtype) -> Any:
    """``determine_qparams`` (torch/ao/quantization/utils.py) of a whole tensor: scale and zero point."""
    import torch

    del dtype
    lowest, highest = torch.clamp(x.reshape(-1).amin(0), max=0.0), torch.clamp(x.reshape(-1).amax(0), min=0.0)
    scale = torch.clamp((highest - lowest) / float(most - least), min=eps)
    zero = torch.clamp(least - torch.round(lowest / scale).to(torch.int64), least, most)
    return scale.to(torch.float64).reshape(1), zero.reshape(1)


def _choose_symmetric(x: torch.Tensor, least: int, most: int, eps: float, dtype: torch.dtype) -> Any:
    """The same of a range around zero."""
    import torch

    scale = torch.clamp(x.reshape(-1).abs().amax(0) / (float(most - least) / 2), min=eps)
    zero = torch.full((1,), 128 if dtype == torch.uint8 else 0, dtype=torch.int64)
    return scale.to(torch.float64).reshape(1), zero


def _choose_for_tokens(x: torch.Tensor, dtype: torch.dtype) -> Any:
    """``choose_qparams_per_token``: of int8, for each row of the last axis."""
    import torch

    del dtype
    scales = torch.clamp(torch.amax(torch.abs(x), dim=-1, keepdim=True), min=1e-5) / 127
    return scales, torch.zeros_like(scales)


def _choose_asymmetric_for_tokens(x: torch.Tensor, dtype: torch.dtype) -> Any:
    """The same with zero points, of which the one is taken that rounds the closer bound less."""
    import torch

    del dtype
    lowest, highest = (
        torch.clamp(torch.amin(x, dim=-1, keepdim=True), max=0.0),
        torch.clamp(torch.amax(x, dim=-1, keepdim=True), min=0.0),
    )
    scale = torch.clamp((highest - lowest) / 255.0, min=torch.finfo(torch.float32).eps)
    below, above = lowest / scale, highest / scale
    zero = torch.where((-128 + below) + (127 + above) > 0, -128 - below, 127 - above)
    return scale.to(torch.float64), torch.clamp(zero, -128, 127).round().to(torch.int64)


def _choose_affine(
    x: torch.Tensor,
    mapping_type: str,
    block_size: Sequence[int],
    target_dtype: torch.dtype,
    quant_min: float | None = None,
    quant_max: float | None = None,
    eps: float | None = None,
    scale_dtype: torch.dtype | None = None,
    zero_point_dtype: torch.dtype | None = None,
    keepdim: bool = False,
) -> Any:
    """``_choose_qparams_affine`` of torchao: scales and zero points of the blocks of a tensor."""
    import torch

    bounds = torch.iinfo(target_dtype)
    least = bounds.min if quant_min is None else quant_min
    most = bounds.max if quant_max is None else quant_max
    eps = torch.finfo(x.dtype).smallest_normal if eps is None else eps
    sizes, reduced = _blocks(x.shape, block_size)
    blocks = x.reshape(sizes)
    lowest = torch.clamp(torch.amin(blocks, dim=reduced, keepdim=keepdim), max=0.0)
    highest = torch.clamp(torch.amax(blocks, dim=reduced, keepdim=keepdim), min=0.0)
    if mapping_type == "ASYMMETRIC":
        scale = torch.clamp((highest - lowest) / float(most - least), min=eps)
        zero = torch.clamp(least - torch.round(lowest / scale), least, most)
        zero_point_dtype = zero_point_dtype or torch.int32
    else:
        if mapping_type == "SYMMETRIC":
            scale = torch.maximum(-lowest, highest) / (float(most - least) / 2)
        else:  # SYMMETRIC_NO_CLIPPING_ERR
            scale = torch.maximum(lowest / float(least), highest / float(most))
        zero = torch.full_like(scale, int((most + least + 1) / 2))
        scale = torch.clamp(scale, min=eps)
    if keepdim:
        shape = [size // block for size, block in zip(x.shape, block_size, strict=True)]
        scale, zero = scale.reshape(shape), zero.reshape(shape)
    return scale.to(scale_dtype or x.dtype), zero.to(zero_point_dtype or zero.dtype)


def _blocks(shape: Sequence[int], block_size: Sequence[int]) -> tuple[list[int], list[int]]:
    """The shape in which each block has axes of its own, and these axes."""
    sizes: list[int] = []
    reduced: list[int] = []
    for size, block in zip(shape, block_size, strict=True):
        if block not in (size, 1):
            sizes += [size // block]
        if block != 1:
            reduced.append(len(sizes))
        sizes.append(block if block != 1 else size)
    return sizes, reduced
