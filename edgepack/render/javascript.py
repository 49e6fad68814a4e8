"""Names and dtypes of a model as JavaScript and TypeScript write them."""

from __future__ import annotations

import json
import re

__all__ = ["js_array", "js_key", "js_member"]

#: The typed array of each dtype, as ``templates/web/dtypes.js`` has them.
_ARRAYS = {
    "bool": "Uint8Array",
    "int8": "Int8Array",
    "uint8": "Uint8Array",
    "int16": "Int16Array",
    "uint16": "Uint16Array",
    "int32": "Int32Array",
    "uint32": "Uint32Array",
    "int64": "BigInt64Array",
    "uint64": "BigUint64Array",
    "float16": "Uint16Array",
    "bfloat16": "Uint16Array",
    "float32": "Float32Array",
    "float64": "Float64Array",
}


def js_array(dtype: str) -> str:
    """The typed array that holds a tensor: ``Float32Array``. Half precision is passed as its bits."""
    return _ARRAYS[dtype]


def js_key(name: str) -> str:
    """A tensor's name, any text, as the key of an object: ``input``, ``"my input:0"``."""
    return name if _is_identifier(name) else json.dumps(name)


def js_member(name: str) -> str:
    """Access to the field of this name: ``.input``, ``["my input:0"]``."""
    return f".{name}" if _is_identifier(name) else f"[{json.dumps(name)}]"


def _is_identifier(name: str) -> bool:
    # As a key, `__proto__` would set the object's prototype.
    return re.fullmatch(r"[A-Za-z_$][A-Za-z0-9_$]*", name) is not None and name != "__proto__"
