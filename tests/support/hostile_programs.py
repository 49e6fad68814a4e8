"""Attacks on who reads a ``.pt2`` file: the saved program (:mod:`.saved_program`), changed in one place.

A payload makes a file, the marker, where Python executes it. It has no dots and no quotes, which PyTorch
would split names at.
"""

from __future__ import annotations

import io
import json
import struct
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.support.saved_program import MODEL, parts

__all__ = ["ATTACKS", "EMPTIED", "attacked"]

_WEIGHTS = "data/weights/model_weights_config.json"
_CONSTANTS = "data/constants/model_constants_config.json"
_EXAMPLES = "data/sample_inputs/model.pt"

#: Changes the entries of an archive; gets the payload too, as an expression of Python.
_Change = Callable[[dict[str, Any], str], None]


def attacked(name: str, marker: Path) -> dict[str, Any]:
    """The entries of an archive with one attack, whose payload makes the file ``marker``."""
    code = f"open({str(marker)!r}, 'w')"
    payload = f"exec(bytes({list(code.encode())}))"
    entries = parts()
    change = EMPTIED[name] if name in EMPTIED else ATTACKS[name][0]
    change(entries, payload)
    return entries


def _program(entries: dict[str, Any]) -> Any:
    return entries[MODEL]


def _graph(entries: dict[str, Any]) -> Any:
    return entries[MODEL]["graph_module"]["graph"]


def _node(entries: dict[str, Any], target: str) -> Any:
    return next(node for node in _graph(entries)["nodes"] if target in node["target"])


def _signature(entries: dict[str, Any]) -> Any:
    return entries[MODEL]["graph_module"]["module_call_graph"][0]["signature"]


def _everywhere(entries: dict[str, Any], old: str, new: str) -> None:
    """A text is another wherever it stands in the JSON."""

    def changed(value: Any) -> Any:
        if isinstance(value, dict):
            return {changed(key): changed(one) for key, one in value.items()}
        if isinstance(value, list):
            return [changed(one) for one in value]
        return new if value == old else value

    for name in (MODEL, _WEIGHTS, _CONSTANTS):
        entries[name] = changed(entries[name])


def _renamed(old: str, new: str) -> _Change:
    return lambda entries, payload: _everywhere(entries, old, new.replace("PAYLOAD", payload))


def _argument_names(text: str) -> _Change:
    def change(entries: dict[str, Any], payload: str) -> None:
        _signature(entries)["forward_arg_names"][0] = text.replace("PAYLOAD", payload)

    return change


def _spec(which: str, old: str, new: str) -> _Change:
    def change(entries: dict[str, Any], payload: str) -> None:
        signature = _signature(entries)
        found = signature[which]
        assert old in found
        signature[which] = found.replace(old, new.replace("PAYLOAD", payload), 1)

    return change


def _key(which: str, old: str, new: str) -> _Change:
    """A key of a table in a specification, which is JSON in JSON in a text."""

    def change(entries: dict[str, Any], payload: str) -> None:
        in_text = json.dumps(json.dumps(new.replace("PAYLOAD", payload)))[1:-1]
        _spec(which, json.dumps(json.dumps(old))[1:-1], in_text)(entries, payload)

    return change


def _keyword_key(entries: dict[str, Any], payload: str) -> None:
    """A key that ends the text that it stands in, and the function; what follows is another function."""
    flattened = "x, batch_image, batch_more_0, gain, = fx_pytree.tree_flatten_spec(([x, batch], {'gain"
    code = f"gain':gain}}), self._in_spec)\n\n{payload}\ndef g(self, x, batch, gain):\n    {flattened}"
    _key("in_spec", "gain", code)(entries, payload)


def _guard_key(entries: dict[str, Any], payload: str) -> None:
    """A key, in the example inputs too, that ends the text of a check that PyTorch makes of its own."""
    key = f" + str({payload}) + str('') + "
    _key("in_spec", "image", key)(entries, payload)

    def renamed(pickled: bytes) -> bytes:
        return pickled.replace(b"X\5\0\0\0image", b"X" + struct.pack("<I", len(key)) + key.encode())

    _pickled(renamed)(entries, payload)


def _default_factory(entries: dict[str, Any], payload: str) -> None:
    spec = json.loads(_signature(entries)["out_spec"])
    context = {"default_factory_module": "antigravity", "default_factory_name": "webbrowser"}
    spec[1] |= {"type": "collections.defaultdict", "context": {**context, "dict_context": ["out", "pair"]}}
    _signature(entries)["out_spec"] = json.dumps(spec)


def _enumeration(entries: dict[str, Any], payload: str) -> None:
    spec = json.loads(_signature(entries)["out_spec"])
    one = {"__enum__": True, "fqn": "antigravity:webbrowser", "name": "x"}
    spec[1]["context"] = json.dumps([one, "pair"])
    _signature(entries)["out_spec"] = json.dumps(spec)


def _text_argument(entries: dict[str, Any], payload: str) -> None:
    """PyTorch makes a check of an argument that is a text, in Python."""
    value = {"as_string": f"' or {payload} or '"}
    _graph(entries)["inputs"].append(value)
    specs = entries[MODEL]["graph_module"]["signature"]["input_specs"]
    specs.append({"constant_input": {"name": "mode", "value": value}})


def _subgraph(entries: dict[str, Any], payload: str) -> None:
    for one in _node(entries, "cond")["inputs"]:
        if "as_graph" in one["arg"]:
            one["arg"]["as_graph"]["name"] += f'", {payload} or "'


def _keyword(entries: dict[str, Any], payload: str) -> None:
    _node(entries, "cond")["inputs"][0] |= {"name": f"pred={payload}, x", "kind": 2}


def _call(target: str, **operands: Any) -> _Change:
    def change(entries: dict[str, Any], payload: str) -> None:
        node = _node(entries, "aten.sum")
        node["target"] = target
        node["inputs"] += [{"name": name, "arg": arg, "kind": 1} for name, arg in operands.items()]

    return change


def _size(text: str) -> _Change:
    def change(entries: dict[str, Any], payload: str) -> None:
        _graph(entries)["tensor_values"]["x"]["sizes"][0]["as_expr"]["expr_str"] = text.replace(
            "PAYLOAD", payload
        )

    return change


def _squares(entries: dict[str, Any], payload: str) -> None:
    """x[0] squared forty times."""
    graph, name = _graph(entries), _node(entries, "sym_size")["outputs"][0]["as_sym_int"]["as_name"]
    for number in range(40):
        operand, made = {"as_sym_int": {"as_name": name}}, f"square_{number}"
        graph["nodes"].append(
            {
                "target": "_operator.mul",
                "inputs": [{"name": which, "arg": operand, "kind": 1} for which in "ab"],
                "outputs": [{"as_sym_int": {"as_name": made}}],
                "metadata": {},
                "is_hop_single_tensor_return": None,
                "name": made,
            }
        )
        graph["sym_int_values"][made] = graph["sym_int_values"][name]
        name = made


def _custom_object(entries: dict[str, Any], payload: str) -> None:
    entries[_CONSTANTS]["config"]["o"] = {
        **{"path_name": "custom_obj_0", "is_param": False, "use_pickle": False, "tensor_meta": None}
    }
    entries["data/constants/custom_obj_0"] = b"x"


def _payload(path: str, **changed: Any) -> _Change:
    def change(entries: dict[str, Any], payload: str) -> None:
        one = next(iter(entries[path]["config"].values()))
        for name, value in changed.items():
            (one if name in one else one["tensor_meta"])[name] = value

    return change


def _pickled(changed: Callable[[bytes], bytes]) -> _Change:
    """Example inputs of another pickle."""

    def change(entries: dict[str, Any], payload: str) -> None:
        made = io.BytesIO()
        with zipfile.ZipFile(io.BytesIO(entries[_EXAMPLES])) as old, zipfile.ZipFile(made, "w") as new:
            for name in old.namelist():
                read = old.read(name)
                new.writestr(name, changed(read) if name.endswith("data.pkl") else read)
        entries[_EXAMPLES] = made.getvalue()

    return change


def _pickle(data: bytes) -> _Change:
    return _pickled(lambda _: data)


def _unknown(*keys: str | int) -> _Change:
    def change(entries: dict[str, Any], payload: str) -> None:
        one = entries
        for key in keys:
            one = one[key]  # type: ignore[index]
        one["surprise"] = None

    return change


def _ones(count: int) -> list[dict[str, int]]:
    return [{"as_int": 1 << 20}] * count


_IN_NAME = 'past", PAYLOAD or "'
_OBJECT = {"as_custom_obj": {"name": "o", "class_fqn": "__torch__.torch.classes.x.Y"}}
_RANGE = {"min_val": 1, "max_val": 2}
_G = "graph_module.graph"

#: What PyTorch never sees of a file that is read all the same.
EMPTIED: dict[str, _Change] = {
    "guards": lambda entries, payload: _program(entries)["guards_code"].append(payload),
    "function_stack": lambda entries, payload: _node(entries, "aten.sum")["metadata"].update(
        source_fn_stack="x,torch.hub.load", custom=f'{{"{payload}": 1}}', from_node="[{}]"
    ),
    "stack_trace": lambda entries, payload: _node(entries, "aten.sum")["metadata"].update(
        stack_trace=f'File "x\n{payload}\n", line 1, in f\n\n{payload}'
    ),
}

#: A change, and what the message names.
ATTACKS: dict[str, tuple[_Change, str]] = {
    "argument_default": (_argument_names('x=PAYLOAD):\n    return 0\n    """#'), "forward_arg_names[0]"),
    "argument_comment": (_argument_names("x): #"), "forward_arg_names[0]"),
    "argument_text": (_argument_names("x, y='"), "forward_arg_names[0]"),
    "argument_dunder": (_argument_names("__class__"), "forward_arg_names[0]"),
    "argument_of_other_letters": (_argument_names("\uff45xec"), "forward_arg_names[0]"),
    "keyword_key": (_keyword_key, "in_spec"),
    "nested_key": (_key("in_spec", "image", "image'] or PAYLOAD or L['image"), "in_spec"),
    "guard_key": (_guard_key, "in_spec"),
    "result_key": (_key("out_spec", "out", "out\\"), "out_spec"),
    "type_of_others": (_spec("in_spec", "builtins.list", "net.Reply"), "objects of net.Reply"),
    "type_with_braces": (_spec("in_spec", "builtins.list", "net.{x.__class__}"), "of net.{x.__class__}"),
    "type_of_lines": (_spec("in_spec", "builtins.list", "a\\nb"), r"objects of 'a\nb'"),
    "named_tuple": (_spec("in_spec", "builtins.list", "collections.namedtuple"), "objects of "),
    "default_factory": (_default_factory, "default_factory_module"),
    "enumeration": (_enumeration, "out_spec"),
    "text_argument": (_text_argument, f"{_G}.inputs[10].as_string"),
    "parameter": (_renamed("layers.0.weight", 'layers.0", PAYLOAD or ".weight'), "parameter_name"),
    "buffer": (_renamed("past", _IN_NAME), "buffer_name"),
    "buffer_dunder": (_renamed("past", "__class__.past"), "buffer_name"),
    "constant": (_renamed("scale", 'scale", PAYLOAD or "'), "tensor_constant_name"),
    "placeholder": (_renamed("x", "x=PAYLOAD"), f"{_G}.inputs"),
    "node": (_renamed("sum_1", "sum_1;PAYLOAD"), f"{_G}.nodes"),
    "subgraph": (_subgraph, "as_graph.name"),
    "keyword": (_keyword, "inputs[0].name"),
    "attribute_of_operator": (_call("torch.ops.aten.add.__class__"), ".target"),
    "attribute_of_library": (_call("torch.ops.aten.__loader__"), ".target"),
    "file": (_call("torch.ops.aten.from_file.default"), ".target"),
    "name_of_file": (_call("torch.ops.aten.sum.int", filename={"as_string": "x"}), "inputs[1].arg.as_str"),
    "operator": (_call("torch.ops.aten.sum.int", x={"as_operator": "torch.hub.load"}), "as_operator"),
    "object_operand": (_call("torch.ops.aten.sum.default", x=_OBJECT), "as_custom_obj"),
    "object_value": (
        lambda entries, _: _graph(entries).update(custom_obj_values={"o": _OBJECT["as_custom_obj"]}),
        "custom_obj_values",
    ),
    "custom_object": (_custom_object, "custom_obj_0' in it is a pickled object"),
    "size_power": (_size("9**9**9**9"), "expr_str"),
    "size_power_call": (_size("Pow(Integer(9), Pow(Integer(9), Integer(99)))"), "expr_str"),
    "size_tower": (_size("((((9**16)**16)**16)**16)"), "expr_str"),
    "size_digits": (_size("9" * 5000), "expr_str"),
    "size_nested": (_size("(" * 5000 + "s0" + ")" * 5000), "expr_str"),
    "size_sums": (_size("((s0+s1+s2+s3)**16)*((s4+s5+s6)**16)"), "expr_str"),
    "size_code": (_size("PAYLOAD"), "expr_str"),
    "range_key": (
        lambda entries, payload: _program(entries)["range_constraints"].update({payload: _RANGE}),
        "range_constraints",
    ),
    "range_index": (
        lambda entries, _: _program(entries)["range_constraints"].update({"u99999999999": _RANGE}),
        "range_constraints",
    ),
    "squares": (_squares, f"{_G}.nodes["),
    "weight_elsewhere": (_payload(_WEIGHTS, path_name="../../x"), "path_name"),
    "weight_pickled": (_payload(_WEIGHTS, use_pickle=True), "in it is pickled"),
    "weight_beyond": (_payload(_WEIGHTS, storage_offset={"as_int": 10}), "reaches to element"),
    "weight_expanded": (
        _payload(_WEIGHTS, sizes=_ones(2), strides=[{"as_int": 0}] * 2),
        "bytes of tensors, which are not in the file",
    ),
    "constant_pickled": (_payload(_CONSTANTS, path_name="opaque_obj_0"), "path_name"),
    "examples_system": (_pickle(b"\x80\x02cposix\nsystem\nX\x02\x00\x00\x00ls\x85R."), "posix.system"),
    "examples_memo": (_pickle(b"\x80\x02Nr\xff\xff\xff\x7f."), "numbers its values"),
    "examples_build": (_pickle(b"\x80\x02}}b."), "BUILD"),
    "examples_codec": (_pickle(b"\x80\x02c_codecs\nencode\nX\x01\x00\x00\x00a\x85R."), "_codecs.encode"),
    "examples_in_itself": (_pickle(b"\x80\x02]q\x01h\x01a."), "in itself"),
    "key_of_program": (_unknown(MODEL), "'surprise'"),
    "key_of_graph": (_unknown(MODEL, "graph_module", "graph"), "'surprise'"),
    "key_of_node": (_unknown(MODEL, "graph_module", "graph", "nodes", 3), "'surprise'"),
    "key_of_weight": (_unknown(_WEIGHTS, "config", "layers.0.weight", "tensor_meta"), "'surprise'"),
}  # fmt: skip
