"""Other sizes of a model's inputs: what they make of all other tensors is asked of LiteRT's interpreter."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import replace

from edgepack.compiler.frontend.tflite.checked_copy import checked_copy
from edgepack.compiler.frontend.tflite.convert import unconverted
from edgepack.compiler.frontend.tflite.interpreter import shapes_with
from edgepack.compiler.frontend.tflite.model import Model, Subgraph
from edgepack.errors import ConfigError

__all__ = ["resized"]


def resized(model: Model, shapes: Mapping[str, tuple[int, ...]], batch: int) -> Model:
    """A model whose inputs have other shapes.

    Args:
        model: as it was read.
        shapes: of inputs, by name; others stay as they are.
        batch: the first size of all inputs; 0 leaves it.

    Raises:
        ConfigError: there is no such input, or the model does not take such a shape.
        ModelError: the interpreter refuses the model.
    """
    main = model.main
    inputs = {main.tensors[index].name: main.tensors[index] for index in main.inputs}
    for name, shape in shapes.items():
        if name not in inputs:
            near = difflib.get_close_matches(name, inputs, n=1)
            hint = f"Did you mean {near[0]}?" if near else f"It has {', '.join(inputs)}."
            raise ConfigError(f"--shape: the model has no input {name!r}.", hint=hint)
        if len(shape) != len(inputs[name].shape):
            raise ConfigError(
                f"--shape {name}: {len(shape)} dimensions given, the input has {len(inputs[name].shape)}.",
                hint=f"In the file it is {_text(inputs[name].shape)}.",
            )
    wanted = {index: _shape(main, index, shapes, batch) for index in main.inputs}
    if all(wanted[index] == main.tensors[index].shape for index in main.inputs):
        return model
    if unconverted(model):  # LiteRT is given operators only that edgepack knows
        return model
    found = shapes_with(checked_copy(model), wanted)
    tensors = tuple(
        tensor if tensor.data is not None else replace(tensor, shape=found.get(tensor.index, tensor.shape))
        for tensor in main.tensors
    )
    return replace(model, subgraphs=(replace(main, tensors=tensors), *model.subgraphs[1:]))


def _shape(main: Subgraph, index: int, shapes: Mapping[str, tuple[int, ...]], batch: int) -> tuple[int, ...]:
    tensor = main.tensors[index]
    shape = shapes.get(tensor.name, tensor.shape)
    return (batch, *shape[1:]) if batch and shape else shape


def _text(shape: tuple[int, ...]) -> str:
    return "x".join(map(str, shape)) or "a scalar"
