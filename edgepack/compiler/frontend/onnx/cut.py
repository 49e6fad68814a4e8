"""Cuts a model at tensors that the user names: what stands before the inputs and behind the outputs is left
out."""

from __future__ import annotations

import contextlib
import difflib
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from edgepack.compiler.frontend.base import ImportOptions
from edgepack.compiler.frontend.onnx.binding import bind, model_inputs
from edgepack.compiler.frontend.onnx.classical.texts import with_numbers
from edgepack.compiler.frontend.onnx.constant_inputs import make_constant
from edgepack.compiler.frontend.onnx.extents import check_nodes
from edgepack.compiler.frontend.onnx.fixed_point import is_fixed_point
from edgepack.compiler.frontend.onnx.impossible_branches import replace_impossible
from edgepack.compiler.frontend.onnx.lost_state import refuse_lost_state
from edgepack.compiler.frontend.onnx.model_file import read_model
from edgepack.compiler.frontend.onnx.onnxruntime_session import value_types
from edgepack.compiler.frontend.onnx.random_numbers import draw
from edgepack.compiler.frontend.onnx.sequences.outputs import give_tensors_of_lists
from edgepack.compiler.frontend.onnx.set_batch import set_batch
from edgepack.compiler.frontend.onnx.shapes import all_nodes, infer_shapes, inner_graphs, static_shape
from edgepack.compiler.frontend.onnx.unread import drop_unread_nodes
from edgepack.errors import ConfigError
from edgepack.plan.dtypes import DTYPE_BYTES

if TYPE_CHECKING:
    import onnx

__all__ = ["cut", "declared_values", "node_reads", "open_model", "split_names", "static_shape"]


def open_model(path: Path, options: ImportOptions, notes: list[str] | None = None) -> onnx.ModelProto:
    """The model in ``path``, its weights loaded, cut where ``options`` say, all inputs of static shape, and
    its batch changed if ``options`` say so; random numbers with a seed are constants.

    Args:
        notes: gets a sentence for each dimension that is open and was taken for a batch of 1, and for each
            branch that the sizes do not fit, and each output that is another than the model's
            (``classical/texts.py``, ``sequences/outputs.py``).

    Raises:
        ModelError: the file cannot be read, or an input has an open dimension.
        ConfigError: ``options`` do not fit the model.
    """
    model, batches = _bound(path, options)
    draw(model)
    if options.batch:
        set_batch(model, options.batch)
    lists = list(give_tensors_of_lists(model, options.limits))
    impossible = list(replace_impossible(model))
    if notes is not None:
        notes += [*batches, *lists, *impossible]
    return model


def _bound(path: Path, options: ImportOptions) -> tuple[onnx.ModelProto, tuple[str, ...]]:
    """The model, cut and static, with the batch that it has, and what is said of open batches
    and of outputs that are others than the model's."""
    model = read_model(path)
    told = with_numbers(model)
    refuse_lost_state(model)
    check_nodes(model, options.limits)
    make_constant(model, options.const)
    if not options.inputs and not options.outputs:
        drop_unread_nodes(model)
        return model, (*told, *bind(model, shapes=options.shapes, dims=options.dims).batches)
    before = model_inputs(model, only_tensors=True)
    cut(model, options)
    after = {item.name: item for item in model_inputs(model)}
    gone = [item for item in before if item.name not in after]
    # What was said of inputs that are gone has decided about the shapes behind them.
    used_names = {item.name for item in gone}
    open_dims = {dim for item in after.values() for dim in item.shape or ()}
    used_dims = {dim for item in before for dim in item.shape or ()} - open_dims
    bound = bind(
        model,
        shapes={name: shape for name, shape in options.shapes.items() if name not in used_names},
        dims={name: size for name, size in options.dims.items() if name not in used_dims},
    )
    return model, (*told, *bound.batches)


def declared_values(path: Path, options: ImportOptions) -> list[onnx.ValueInfoProto]:
    """What the file says of tensors inside the model, with the sizes of named dimensions that are known."""
    model = read_model(path, weights=False)
    known = _known_dims(model, options)
    for value in model.graph.value_info:
        _write_dims(value, known)
    return list(model.graph.value_info)


def cut(model: onnx.ModelProto, options: ImportOptions) -> None:
    """Leaves of the model, in place, what computes ``options.outputs`` from ``options.inputs``.

    The inputs are the named ones in their order, then the model's own that are still needed. Types and shapes
    of new inputs are inferred from the model's inputs, as far as ``options`` or the file bind these. Sizes of
    tensors that are read (Shape, Size) become constants where they are known, so that a tensor is not needed
    for its size alone.

    Raises:
        ConfigError: a name is no tensor of the model, or nothing lies between inputs and outputs.
    """
    import onnx

    graph = model.graph
    declared = {value.name: value for value in graph.value_info}
    known = {*_tensors(graph), *(tensor.name for tensor in graph.initializer)}
    inputs, dtypes = _with_dtypes(split_names(options.inputs, known), known)
    outputs = split_names(options.outputs, known) or [value.name for value in graph.output]
    _check_names(model, inputs, outputs)
    own = {value.name: value for value in (*graph.input, *graph.output)}
    if inputs:
        _bind_known(model, options)
    types = _types(model, [*inputs, *outputs])
    nodes, names = _between(graph, set(inputs), outputs, types if inputs else {})
    unused = [name for name in inputs if name not in names]
    if unused:
        raise ConfigError(
            f"--inputs: none of the outputs depends on {unused[0]!r}.",
            hint=f"The outputs are {', '.join(outputs)}; choose inputs that stand before them.",
        )
    new_inputs = [_new_input(name, types, declared, dtypes) for name in inputs]
    constants = {tensor.name for tensor in graph.initializer}
    new_inputs += [value for value in graph.input if value.name in names - constants - set(inputs)]
    new_outputs = [own.get(name) or types.get(name) or onnx.ValueInfoProto(name=name) for name in outputs]
    weights = [tensor for tensor in graph.initializer if tensor.name in names]
    for kind, values in (
        ("node", nodes), ("input", new_inputs), ("output", new_outputs), ("initializer", weights),
    ):  # fmt: skip
        field, copies = getattr(graph, kind), list(values)
        del field[:]
        field.extend(copies)
    if not is_fixed_point(model):  # of whose operators nothing infers shapes
        del graph.value_info[:]
    model.ir_version = max(model.ir_version, 4)  # before, initializers are inputs too


def node_reads(node: onnx.NodeProto) -> Iterator[str]:
    """Names of all tensors that the node reads, also from within the graphs that it holds."""
    yield from (name for name in node.input if name)
    for inner in inner_graphs(node):
        own = {value.name for value in inner.input} | {tensor.name for tensor in inner.initializer}
        own |= {name for one in all_nodes(inner) for name in one.output}
        read = [name for one in inner.node for name in node_reads(one)]
        yield from (name for name in (*read, *(value.name for value in inner.output)) if name not in own)


def _tensors(graph: onnx.GraphProto) -> Iterator[str]:
    yield from (value.name for value in graph.input)
    yield from (name for node in graph.node for name in node.output if name)


def split_names(texts: Sequence[str], known: Collection[str]) -> list[str]:
    """The names in texts that hold one or several, with commas between them."""
    parts = [[text] if text in known else [part.strip() for part in text.split(",")] for text in texts]
    return list(dict.fromkeys(name for part in parts for name in part))


def _with_dtypes(names: Iterable[str], known: set[str]) -> tuple[list[str], dict[str, str]]:
    """Splits ``NAME:dtype`` into both, where there is no tensor of the whole name."""
    plain, dtypes = [], {}
    for text in names:
        name, _, dtype = text.rpartition(":")
        if text not in known and name and dtype in DTYPE_BYTES:
            dtypes[name] = dtype
            plain.append(name)
        else:
            plain.append(text)
    return list(dict.fromkeys(plain)), dtypes


def _check_names(model: onnx.ModelProto, inputs: Sequence[str], outputs: Sequence[str]) -> None:
    graph = model.graph
    constants = {tensor.name for tensor in graph.initializer}
    taken = {value.name for value in graph.input} - constants
    known = [name for name in _tensors(graph) if name not in constants]
    for option, names in (("--inputs", inputs), ("--outputs", outputs)):
        for name in names:
            if name in constants:
                raise ConfigError(f"{option}: {name!r} is a constant of the model.", hint="Name another one.")
            if name not in known:
                hint = _nearest(name, known, graph)
                raise ConfigError(f"{option}: the model has no tensor {name!r}.", hint=hint)
    for name in outputs:
        if name in inputs or name in taken:
            raise ConfigError(
                f"--outputs: {name!r} is an input: there is nothing to compute.", hint="Name another one."
            )


def _nearest(name: str, known: Sequence[str], graph: onnx.GraphProto) -> str:
    node = next((node for node in graph.node if node.name == name), None)
    if node is not None:
        made = ", ".join(output for output in node.output if output)
        return f"A node has that name; what it computes is {made}."
    if "=" in name:
        return "A file for the recorded data is given with --input NAME=FILE.npy."
    close = difflib.get_close_matches(name, known, n=3)
    lower = name.lower()
    close += [other for other in known if lower in other.lower() and other not in close][: 3 - len(close)]
    if close:
        return f"Did you mean {' or '.join(close)}?"
    return f"It has {len(known)} tensors, from {known[0]} to {known[-1]}; netron shows them." if known else ""


def _bind_known(model: onnx.ModelProto, options: ImportOptions) -> None:
    """Writes the sizes that are known into the model's inputs, as :func:`bind` does, but asks for none."""
    known = _known_dims(model, options)
    for value in model.graph.input:
        if value.name in options.shapes:
            value.type.tensor_type.shape.Clear()
            for size in options.shapes[value.name]:
                value.type.tensor_type.shape.dim.add().dim_value = size
            value.type.tensor_type.shape.SetInParent()
        _write_dims(value, known)
    for value in model.graph.output:
        if value.type.WhichOneof("value") == "tensor_type":
            value.type.tensor_type.ClearField("shape")
    if not is_fixed_point(model):
        del model.graph.value_info[:]


def _types(model: onnx.ModelProto, wanted: Sequence[str]) -> dict[str, onnx.ValueInfoProto]:
    """Types and shapes by name, as far as they can be inferred; by ONNX Runtime, which knows its operators,
    where ONNX's own rules do not reach one that is wanted."""
    inferred = infer_shapes(model).graph
    types = {value.name: value for value in (*inferred.value_info, *inferred.input, *inferred.output)}
    if any(name not in types or not types[name].type.tensor_type.elem_type for name in wanted):
        with contextlib.suppress(Exception):  # it refuses what it does not know, in many ways
            types.update({value.name: value for value in value_types(model)})
    return types


def _known_dims(model: onnx.ModelProto, options: ImportOptions) -> dict[str, int]:
    """Sizes of named dimensions: those given, and those that follow from given shapes."""
    known = dict(options.dims)
    items = {item.name: item for item in model_inputs(model, only_tensors=True)}
    for name, shape in options.shapes.items():
        declared = items[name].shape if name in items else None
        for dim, size in zip(declared or (), shape, strict=False):
            if isinstance(dim, str):
                known.setdefault(dim, size)
    return known


def _write_dims(value: onnx.ValueInfoProto, known: Mapping[str, int]) -> None:
    for dim in value.type.tensor_type.shape.dim:
        if dim.dim_param in known:
            dim.dim_value = known[dim.dim_param]


def _between(
    graph: onnx.GraphProto,
    inputs: set[str],
    outputs: Sequence[str],
    types: dict[str, onnx.ValueInfoProto],
) -> tuple[list[onnx.NodeProto], set[str]]:
    """The nodes that compute the outputs from the inputs, in order, and the names of all that they read."""
    produced = {name: index for index, node in enumerate(graph.node) for name in node.output if name}
    todo, names, kept = list(outputs), set(), dict[int, "onnx.NodeProto"]()
    while todo:
        name = todo.pop()
        if name in names:
            continue
        names.add(name)
        index = produced.get(name)
        if name in inputs or index is None or index in kept:
            continue
        kept[index] = _size_as_constant(graph.node[index], types) or graph.node[index]
        todo += node_reads(kept[index])
    nodes = [kept[index] for index in sorted(kept)]
    for node in nodes:
        for place, name in enumerate(node.output):
            if name in inputs:  # of several outputs, this one is given now
                node.output[place] = f"{name}/before_the_cut"
    return nodes, names


def _size_as_constant(node: onnx.NodeProto, types: dict[str, onnx.ValueInfoProto]) -> onnx.NodeProto | None:
    import numpy as np
    import onnx

    if node.op_type not in ("Shape", "Size") or node.domain not in ("", "ai.onnx"):
        return None
    shape = static_shape(types.get(node.input[0]))
    if shape is None:
        return None
    bounds = {attribute.name: attribute.i for attribute in node.attribute}
    value = np.asarray(shape[slice(bounds.get("start"), bounds.get("end"))], np.int64)
    if node.op_type == "Size":
        value = np.asarray(int(np.prod(shape, dtype=np.int64)), np.int64)
    tensor = onnx.numpy_helper.from_array(value)
    return onnx.helper.make_node("Constant", [], list(node.output), name=node.name, value=tensor)


def _new_input(
    name: str,
    types: dict[str, onnx.ValueInfoProto],
    declared: dict[str, onnx.ValueInfoProto],
    dtypes: dict[str, str],
) -> onnx.ValueInfoProto:
    """What the model says of a tensor; what was inferred counts more than what the file declares."""
    import onnx

    found = [value for value in (types.get(name), declared.get(name)) if value is not None]
    result = onnx.ValueInfoProto(name=name)
    tensor = result.type.tensor_type
    tensor.elem_type = next((v.type.tensor_type.elem_type for v in found if v.type.tensor_type.elem_type), 0)
    if name in dtypes:
        spelled = {"float32": "FLOAT", "float64": "DOUBLE"}.get(dtypes[name], dtypes[name].upper())
        tensor.elem_type = onnx.TensorProto.DataType.Value(spelled)
    if not tensor.elem_type:
        raise ConfigError(
            f"--inputs: the type of {name!r} cannot be inferred.", hint=f"Give it: --inputs {name}:float32."
        )
    with_shape = [value for value in found if value.type.tensor_type.HasField("shape")]
    static = [value for value in with_shape if static_shape(value) is not None]
    for value in (*static, *with_shape)[:1]:
        tensor.shape.CopyFrom(value.type.tensor_type.shape)
    return result
