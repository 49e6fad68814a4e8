"""Files are read by their schema: what does not fit it, or the file, is refused, whatever offsets say."""

from __future__ import annotations

import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import flatbuffers
import numpy as np
import pytest

pytest.importorskip("ai_edge_litert", reason="LiteRT is not installed: pip install edgepack[tflite]")

from edgepack.compiler.frontend import tflite
from edgepack.compiler.frontend.tflite.convert import convert
from edgepack.compiler.frontend.tflite.flatbuffer import DamagedError, read_tables
from edgepack.compiler.frontend.tflite.model_file import read_model
from edgepack.compiler.frontend.tflite.schema import SCALARS, schema, tables
from edgepack.errors import ModelError
from workbench.models.tflite import DRAWN, Writer, drawn
from workbench.models.tflite.control_flow import counting


def packed(model: Any) -> bytes:
    builder = flatbuffers.Builder(1024)
    builder.Finish(model.Pack(builder), b"TFL3")
    return bytes(builder.Output())


def written(content: bytes, folder: Path) -> Path:
    path = folder / "model.tflite"
    path.write_bytes(content)
    return path


class _Slots:
    """Stands for a builder: notes with what a field is written."""

    def __getattr__(self, name: str) -> Callable[..., None]:
        def note(*arguments: Any) -> None:
            self.found = name, arguments

        return note


#: How flatc writes scalars, by the letters of ``SCALARS``.
_WRITTEN = {
    "?": "Bool", "b": "Int8", "B": "Uint8", "H": "Uint16", "i": "Int32", "I": "Uint32", "q": "Int64",
    "Q": "Uint64", "f": "Float32",
}  # fmt: skip


def test_the_schema_is_that_of_litert() -> None:
    """Each field has its slot and its size, and there is none more."""
    for name in tables():
        _check_table(name)


def _check_table(name: str) -> None:
    classes, slots = schema(), _Slots()
    fields = tables()[name].fields
    kinds = {f"{one.name}Type" for one in fields if one.is_union}
    assert {*kinds, *(one.name for one in fields)} == set(vars(getattr(classes, f"{name}T")())), name
    for field in fields:
        called = field.name[0].upper() + field.name[1:]
        getattr(classes, f"{name}Add{called}")(slots, 0)
        how, (slot, *_) = slots.found
        inline = field.form and not field.is_vector
        assert slot == field.slot, field
        assert how == f"Prepend{_WRITTEN[field.form] if inline else 'UOffsetTRelative'}Slot", field
        if field.is_vector:
            getattr(classes, f"{name}Start{called}Vector")(slots, 1)
            size = struct.calcsize(field.form) if field.form else 4
            assert slots.found == ("StartVector", (size, 1, size)), field


def test_all_kinds_of_tables_are_in_the_schema() -> None:
    classes = vars(schema())
    packed_ones = {name for name in classes if name.endswith("T") and hasattr(classes[name], "Pack")}
    assert set(tables()) == {name[:-1] for name in packed_ones}
    assert set(_WRITTEN) == set(SCALARS.values())


def _same(a: Any, b: Any) -> None:
    if isinstance(a, list):
        assert len(a) == len(b)
        for one, other in zip(a, b, strict=True):
            _same(one, other)
    elif hasattr(a, "Pack"):
        assert type(a) is type(b)
        for name, value in vars(a).items():
            _same(value, getattr(b, name))
    elif isinstance(a, np.ndarray):
        np.testing.assert_array_equal(a, b)
    else:
        assert a == (b.decode() if isinstance(b, bytes) else b)


@pytest.mark.parametrize("kind", sorted(DRAWN)[::8])
def test_what_is_read_is_what_flatc_reads(kind: str) -> None:
    content = drawn(kind, 5)
    _same(read_tables(content), schema().ModelT.InitFromPackedBuf(content, 0))
    _same(read_tables(counting(3, "float32")), schema().ModelT.InitFromPackedBuf(counting(3, "float32"), 0))


def shared(subgraphs: int, operators: int) -> bytes:
    """A file of so many subgraphs, all the same one, of so many operators, all the same one."""
    content = bytearray(8)
    content[4:8] = b"TFL3"

    def add(form: str, *values: int) -> int:
        start = len(content)
        content.extend(struct.pack(f"<{form}", *values))
        return start

    def vector(count: int) -> int:
        """Of offsets to what comes behind it."""
        start = add("I", count)
        content.extend(struct.pack(f"<{count}I", *range(4 * count, 0, -4)))
        return start

    graphs_in_model = add("6H", 10, 8, 0, 0, 4, 0)  # the third field, at 4 of 8 bytes
    operators_in_graph = add("6H", 12, 8, 0, 0, 0, 4)
    nothing = add("2H", 4, 4)
    model = add("iI", len(content) - graphs_in_model, 4)
    struct.pack_into("<I", content, 0, model)
    vector(subgraphs)
    add("iI", len(content) - operators_in_graph, 4)
    vector(operators)
    add("i", len(content) - nothing)
    return bytes(content)


def test_offsets_that_share_what_they_refer_to_do_not_make_a_large_model(tmp_path: Path) -> None:
    """160 KB that say they are 4e8 operators."""
    assert len(read_tables(shared(2, 3)).subgraphs[1].operators) == 3
    content = shared(20_000, 20_000)
    assert len(content) < 161_000
    with pytest.raises(ModelError, match="read more often than the file is long"):
        tflite.summarise(written(content, tmp_path))


def _changed(change: Callable[[Any], None]) -> bytes:
    """A model of two sums that is changed before it is written."""
    writer = Writer()
    x, y, z = (writer.tensor([2, 3], "float32", name=name) for name in "xyz")
    weights = writer.tensor([2, 3], "float32", data=np.ones((2, 3), np.float32), name="w")
    writer.operator("ADD", [x, weights], [y])
    writer.operator("ADD", [y, x], [z])
    model = read_tables(writer.finished([x], [z]))
    change(model)
    return packed(model)


def _set(*path: Any) -> Callable[[Any], None]:
    """Sets what a path of names and indices leads to."""
    *way, last, value = path

    def change(model: Any) -> None:
        for step in way:
            model = model[step] if isinstance(step, int) else getattr(model, step)
        setattr(model, last, value)

    return change


GRAPH = ("subgraphs", 0)


def _calls(index: int) -> Callable[[Any], None]:
    def change(model: Any) -> None:
        classes = schema()
        operator = model.subgraphs[0].operators[0]
        operator.builtinOptionsType = classes.BuiltinOptions.CallOptions
        operator.builtinOptions = classes.CallOptionsT()
        operator.builtinOptions.subgraph = index

    return change


def _elsewhere(model: Any) -> None:
    model.externalBufferGroups = [schema().ExternalBufferGroupT()]
    model.externalBufferGroups[0].name = "/etc/passwd"


def _behind(model: Any) -> None:
    model.buffers[1].data, model.buffers[1].offset, model.buffers[1].size = None, 64, 1 << 40


REFUSED = {
    "a type that nobody knows": (_set(*GRAPH, "tensors", 0, "type", 99), "type of Tensor is 99"),
    "an activation that nobody knows": (
        _set(*GRAPH, "operators", 0, "builtinOptions", "fusedActivationFunction", 77),
        "fusedActivationFunction of AddOptions is 77",
    ),
    "options of a kind that nobody knows": (
        _set(*GRAPH, "operators", 0, "builtinOptionsType", 250),
        "builtinOptions of Operator is 250",
    ),
    "options without a kind": (_set(*GRAPH, "operators", 0, "builtinOptionsType", 0), "is half there"),
    "a name that is no text": (_set(*GRAPH, "tensors", 0, "name", b"\xff\xfe"), "no text in UTF-8"),
    "a tensor that is not there": (_set(*GRAPH, "operators", 0, "inputs", [0, 9]), "names number 9"),
    "a result that is left out": (_set(*GRAPH, "operators", 0, "outputs", [-1]), "names number -1"),
    "a kind that is not there": (_set(*GRAPH, "operators", 0, "opcodeIndex", 7), "of kind 7"),
    "a buffer that is not there": (_set(*GRAPH, "tensors", 3, "buffer", 7), "a buffer 7 of 2"),
    "a buffer behind the file": (_behind, "a buffer ends behind the file"),
    "other files": (_elsewhere, "numbers in other files"),
    "too few bytes": (_set(*GRAPH, "tensors", 3, "shape", [2, 4]), "has 24 bytes"),
    "a constant that is computed": (_set(*GRAPH, "operators", 0, "outputs", [3]), "a constant, and computed"),
    "an input that is computed": (_set(*GRAPH, "operators", 0, "outputs", [0]), "more than once"),
    "a tensor that is computed twice": (_set(*GRAPH, "operators", 1, "outputs", [1]), "more than once"),
    "a subgraph that calls itself": (_calls(0), "its subgraph 0 calls itself"),
    "a subgraph that is not there": (_calls(3), "calls a subgraph 3 that is not there"),
}  # fmt: skip


@pytest.mark.parametrize("what", REFUSED)
def test_what_cannot_be_is_refused(what: str, tmp_path: Path) -> None:
    change, said = REFUSED[what]
    with pytest.raises(ModelError, match=said):
        tflite.summarise(written(_changed(change), tmp_path))


def test_subgraphs_that_call_each_other_are_refused(tmp_path: Path) -> None:
    """Also where nothing calls them: LiteRT looks at all."""
    writer = Writer()
    x, y = writer.tensor([2], "float32", name="x"), writer.tensor([2], "float32", name="y")
    writer.operator("RELU", [x], [y])
    for other in (2, 1):
        writer.next_subgraph([], [])
        writer.operator("CALL_ONCE", [], [], 1, initSubgraphIndex=other)
    with pytest.raises(ModelError, match="its subgraph 1 calls itself"):
        read_model(written(writer.finished([], []), tmp_path))


def test_fields_that_the_schema_does_not_have_are_refused() -> None:
    builder = flatbuffers.Builder(64)
    builder.StartObject(12)
    builder.PrependInt32Slot(11, 5, 0)
    builder.Finish(builder.EndObject(), b"TFL3")
    with pytest.raises(DamagedError, match="a table Model has a field 11 that edgepack does not know"):
        read_tables(bytes(builder.Output()))


@pytest.mark.parametrize(("place", "by"), [("root", 1), ("root", 2), ("vector", 2)])
def test_what_lies_between_two_places_is_refused(place: str, by: int) -> None:
    content = bytearray(shared(2, 2))
    at = 0 if place == "root" else struct.unpack_from("<I", content, 0)[0] + 4
    struct.pack_into("<I", content, at, struct.unpack_from("<I", content, at)[0] + by)
    with pytest.raises(DamagedError, match="lies outside of it"):
        read_tables(bytes(content))


def test_names_are_unique_whatever_the_file_calls_its_tensors(tmp_path: Path) -> None:
    writer = Writer()
    for name in ("a", "a", "a#0", "a#1", "", "tensor#4"):
        writer.tensor([1], "float32", name=name)
    writer.graph.tensors[4].name = b""
    names = [tensor.name for tensor in read_model(written(writer.finished([], []), tmp_path)).main.tensors]
    assert len(set(names)) == 6
    assert names[2:4] == ["a#0", "a#1"]


def _sparse(change: Callable[[Any], None]) -> bytes:
    """A matrix of which two rows of four are there."""
    writer = Writer()
    x = writer.tensor([4, 3], "float32", data=np.arange(6, dtype=np.float32), name="x")
    y = writer.tensor([4, 3], "float32", name="y")
    writer.sparse(x, [1, 3], 3)
    writer.operator("DENSIFY", [x], [y], 1)
    change(writer.graph.tensors[0].sparsity)
    return writer.finished([], [y])


SPARSE = {
    "another size": (_set("dimMetadata", 1, "denseSize", 4), "not those of its shape"),
    "a huge size": (_set("dimMetadata", 1, "denseSize", 2**31 - 1), "not those of its shape"),
    "a negative size": (_set("dimMetadata", 1, "denseSize", -3), "not those of its shape"),
    "a row that is not there": (
        _set("dimMetadata", 0, "arrayIndices", "values", [1, 4]),
        "elements outside of its shape",
    ),
    "a row below the first": (
        _set("dimMetadata", 0, "arrayIndices", "values", [-1, 3]),
        "elements outside of its shape",
    ),
    "segments that end behind the rows": (
        _set("dimMetadata", 0, "arraySegments", "values", [0, 3]),
        "segments are out of order",
    ),
    "too few segments": (_set("dimMetadata", 0, "arraySegments", "values", [0]), "too few segments"),
    "no segments": (_set("dimMetadata", 0, "arraySegments", "values", None), "too few segments"),
    "a traversal of other dimensions": (_set("traversalOrder", [0, 0]), "none of its dimensions"),
    "blocks that do not fill it": (_set("blockMap", [0]), "none of its dimensions"),
}


@pytest.mark.parametrize("what", SPARSE)
def test_sparse_constants_fit_their_shapes(what: str, tmp_path: Path) -> None:
    change, said = SPARSE[what]
    np.testing.assert_array_equal(
        read_model(written(_sparse(lambda _: None), tmp_path)).main.tensors[0].data,
        [[0, 0, 0], [0, 1, 2], [0, 0, 0], [3, 4, 5]],
    )
    with pytest.raises(ModelError, match=said):
        read_model(written(_sparse(change), tmp_path))


def test_half_a_number_of_a_sparse_constant_is_refused(tmp_path: Path) -> None:
    model = read_tables(_sparse(lambda _: None))
    model.buffers[1].data = model.buffers[1].data[:-1]
    with pytest.raises(ModelError, match="tensor 'x' of float32 has 23 bytes"):
        read_model(written(packed(model), tmp_path))


def test_constants_of_all_tensors_together_take_a_multiple_of_the_file(tmp_path: Path) -> None:
    """Each is the same buffer, and would be a tensor of its own here."""
    writer = Writer()
    for _ in range(3000):
        writer.tensor([100_000], "int8", data=None)
    content = schema().BufferT()
    content.data = np.zeros(100_000, np.uint8)
    writer.model.buffers.append(content)
    for tensor in writer.graph.tensors:
        tensor.buffer = 1
    with pytest.raises(ModelError, match="constants take much more room than the file"):
        read_model(written(writer.finished([], []), tmp_path))


@pytest.mark.parametrize(("zero", "said"), [(128, ""), (129, "zero point 129"), (2**40, "zero point")])
def test_zero_points_are_those_of_the_type(zero: int, said: str, tmp_path: Path) -> None:
    writer = Writer()
    writer.tensor([4], "int8", 0.5, zero, name="x")
    path = written(writer.finished([0], [0]), tmp_path)
    if not said:
        read_model(path)
        return
    with pytest.raises(ModelError, match=said):
        read_model(path)


def test_integers_that_are_quantised_in_blocks_are_shown_and_not_compiled(tmp_path: Path) -> None:
    def in_blocks(model: Any) -> None:
        classes = schema()
        made = model.subgraphs[0].tensors[0].quantization = classes.QuantizationParametersT()
        made.detailsType = classes.QuantizationDetails.BlockwiseQuantization
        made.details = classes.BlockwiseQuantizationT()

    path = written(_changed(in_blocks), tmp_path)
    assert tflite.summarise(path).nodes == 2
    with pytest.raises(ModelError, match="ADD: integers that are quantised in blocks"):
        convert(read_model(path))


def test_branches_that_are_written_out_again_and_again_are_refused(tmp_path: Path) -> None:
    """A loop whose condition, which is computed twice, is a loop, and so on."""
    writer, ends = Writer(), []
    for level in range(8):
        x, y = writer.tensor([], "bool"), writer.tensor([], "bool")
        if level < 6:
            writer.operator("WHILE", [x], [y], 1, condSubgraphIndex=level + 1, bodySubgraphIndex=7)
        else:
            writer.operator("LOGICAL_NOT", [x], [y], 1)
        for _ in range(4000 if level == 6 else 0):
            writer.operator("LOGICAL_NOT", [y], [y := writer.tensor([], "bool")], 1)
        ends.append((x, y))
        if level < 7:
            writer.next_subgraph([], [])
    for graph, (x, y) in zip(writer.model.subgraphs, ends, strict=True):
        graph.inputs, graph.outputs = [x], [y]
    with pytest.raises(ModelError, match="too many operators"):
        convert(read_model(written(writer.finished(*([one] for one in ends[-1])), tmp_path)))
