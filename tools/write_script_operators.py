"""Writes ``edgepack/compiler/frontend/torch/script/operators.txt``: what TorchScript of strangers may call.

    python tools/write_script_operators.py            # needs PyTorch, and prints what changed

An operator is on the list for its schemas, all of them: what goes in and out are tensors, numbers, and lists
and dicts of these, and a text is the name of a variant ("bilinear") or one that is worked on, never that of a
file, a process or a device's queue. Operators whose name begins with ``_`` are PyTorch's own parts, which
check less than the public ones do; those that its compiler prints are named here. After a new PyTorch, run it
and read what is new.
"""

from __future__ import annotations

import re
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

LIST = Path(__file__).resolve().parents[1] / "edgepack/compiler/frontend/torch/script/operators.txt"

#: What stands for a value of a type that holds data and nothing else.
_DATA = re.compile(
    r"(?:Tensor|int|float|bool|complex|number|str|Device|Any|AnyEnumType|Generator|NoneType|t\d?|tVal"
    r"|Optional|List|Dict|Tuple|[\[\], ])+"
)
#: Arguments that are texts by their names: variants of an operator, and what is said where it fails.
_VARIANTS = {
    *("approximate", "assert_msg", "driver", "equation", "indexing", "interpolation", "message", "mode"),
    *("norm", "ord", "p", "pad_mode", "padding", "padding_side", "reduce", "rounding_mode", "side", "UPLO"),
}  # fmt: skip
#: Operators that work on texts themselves.
_OF_TEXTS = {
    *("Delete", "Float", "Int", "add", "any", "capitalize", "center", "clear", "copy", "count", "device"),
    *("dict", "endswith", "eq", "expandtabs", "find", "format", "ge", "get", "gt", "index", "isalnum"),
    *("isalpha", "isdecimal", "isdigit", "isidentifier", "islower", "isnumeric", "isprintable", "isspace"),
    *("istitle", "isupper", "items", "join", "keys", "le", "len", "list", "ljust", "lower", "lstrip", "lt"),
    *("ne", "ord", "partition", "percentFormat", "pop", "popitem", "remove", "replace", "rfind", "rindex"),
    *("rjust", "rpartition", "rsplit", "rstrip", "setdefault", "slice", "sort", "sorted", "split"),
    *("splitlines", "startswith", "strip", "swapcase", "title", "update", "upper", "values", "warn", "zfill"),
    *("__contains__", "__getitem__", "_set_item", "__interpolate", "__upsample"),
    *("get_autocast_dtype", "is_autocast_enabled", "is_autocast_cpu_enabled"),
}  # fmt: skip
#: Of PyTorch's own parts, those that its compiler, its functions in Python, or a trace put into code.
_PARTS = {
    *("__and__", "__contains__", "__derive_index", "__getitem__", "__iand__", "__ilshift__", "__interpolate"),
    *("__ior__", "__irshift__", "__is__", "__isnot__", "__ixor__", "__lshift__", "__not__", "__or__"),
    *("__range_length", "__round_to_zero_floordiv", "__rshift__", "__upsample", "__xor__"),
    *("_adaptive_avg_pool2d", "_adaptive_avg_pool3d", "_assert_async", "_assert_scalar", "_cast_Byte"),
    *("_cast_Char", "_cast_Double", "_cast_Float", "_cast_Half", "_cast_Int", "_cast_Long", "_cast_Short"),
    *("_conj", "_convolution", "_convolution_mode", "_dim_arange", "_infer_size", "_is_all_true"),
    *("_nested_tensor_from_mask", "_nested_tensor_from_mask_left_aligned"),
    *("_is_any_true", "_log_softmax", "_native_batch_norm_legit_no_training", "_native_multi_head_attention"),
    *("_pack_padded_sequence", "_pad_circular", "_pad_packed_sequence", "_reshape_alias", "_safe_softmax"),
    *("_scaled_dot_product_attention_math", "_set_item", "_shape_as_tensor", "_softmax", "_to_copy"),
    *("_transformer_encoder_layer_fwd", "_unique", "_unique2", "_unsafe_view"),
    *("_unwrap_optional", "_upsample_bicubic2d_aa", "_upsample_bilinear2d_aa", "_upsample_lanczos2d_aa"),
    *("_upsample_nearest_exact1d", "_upsample_nearest_exact2d", "_upsample_nearest_exact3d", "_weight_norm"),
}  # fmt: skip
#: What says of tensors and numbers how they are, and what is asked for by a function of Python's.
_PRIM = {
    *("EnumName", "EnumValue", "NumToTensor", "RaiseException", "StringIndex"),
    *("abs", "data", "device", "dtype", "grad", "index", "is_cpu", "is_cuda", "is_ipu", "is_maia", "is_meta"),
    *("is_mkldnn", "is_mps", "is_mtia", "is_nested", "is_quantized", "is_sparse", "is_sparse_csr"),
    *("is_vulkan", "is_xla", "is_xpu", "itemsize", "layout", "max", "min", "nbytes", "rangelist"),
    *("requires_grad", "type"),
}  # fmt: skip
#: Not on the list though their schemas are of data: gradients, halves of operators and other libraries'
#: entrances (which take what another operator prepared for them), sparse and nested tensors (whose indices
#: nobody checks), what changes a tensor's memory rather than its numbers, settings of the process, other
#: devices, and tests.
_LEFT_OUT = re.compile(
    r".*backward.*|.*_forward|(?:cudnn|miopen|mkldnn|mps|fbgemm|quantized|slow|thnn|sym|fused)_.*|.*overrideable"
    r"|.*sparse.*|.*mkldnn.*|.*nested.*|(?:c?(?:col|row)_)?indices(?:_copy)?|(?:dense_dim|hspmm|smm|sspaddmm|values_copy)"
    r"|batch_norm_(?:elemt|gather|stats|update).*|.*pin.?memory.*|is_pinned|coalesce.*|is_coalesced|q_\w+"
    r"|resize_?|resize_as_?|set_|data|set_data|retain.*|requires_grad_|grad|get_gradients|output_nr|glu_jvp"
    r"|(?:manual_|initial_)?seed|Generator|cuda|to_cpu|has_torch_function|hash.*|id|rename.*|align_.*"
    r"|choose_qparams\w*|conv_depthwise3d|empty_quantized|is_distributed|is_vulkan_available|rrelu_with_noise.*|segment_reduce|get_device"
)


def operators() -> dict[str, list[str]]:
    """The names that are on the list, by what stands before ``::``."""
    import torch

    schemas: dict[str, list[Any]] = defaultdict(list)
    for schema in torch._C._jit_get_all_schemas():
        schemas[schema.name].append(schema)
    found: dict[str, list[str]] = {"aten": [], "prim": []}
    for name in sorted(schemas):
        library, _, own = name.partition("::")
        if library == "prim" and own in _PRIM:
            found["prim"].append(own)
        elif library == "aten" and _is_arithmetic(own, schemas[name]):
            found["aten"].append(own)
    return found


def _is_arithmetic(name: str, schemas: list[Any]) -> bool:
    if name.startswith("_"):
        if name not in _PARTS:
            return False
    elif _LEFT_OUT.fullmatch(name):
        return False
    return all(_holds_data(name, schema) for schema in schemas)


def _holds_data(name: str, schema: Any) -> bool:
    if not all(_DATA.fullmatch(str(one.type)) for one in (*schema.arguments, *schema.returns)):
        return False
    texts = (one.name for one in schema.arguments if "str" in str(one.type))
    return name in _OF_TEXTS or all(text in _VARIANTS for text in texts)


def written() -> dict[str, list[str]]:
    """The names that are on the list as it stands."""
    found: dict[str, list[str]] = {"aten": [], "prim": []}
    for line in LIST.read_text(encoding="utf-8").splitlines():
        if line and not line.startswith("#"):
            library, _, own = line.partition("::")
            found[library].append(own)
    return found


def _lines(found: dict[str, list[str]]) -> Iterator[str]:
    yield "# What TorchScript of strangers may call; tools/write_script_operators.py writes it, and says why."
    for library, names in found.items():
        yield from (f"{library}::{name}" for name in names)


def main() -> int:
    """Write it."""
    before = written() if LIST.is_file() else {}
    found = operators()
    LIST.write_text("\n".join(_lines(found)) + "\n", encoding="utf-8", newline="\n")
    for library, names in found.items():
        old = set(before.get(library, ()))
        for sign, changed in (("+", set(names) - old), ("-", old - set(names))):
            sys.stdout.writelines(f"{sign} {library}::{name}\n" for name in sorted(changed))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
