"""Links of chains that add up along axes, and that move elements."""

from __future__ import annotations

from workbench.models.chains.builder import ChainBuilder, Links

__all__ = ["TENSORS"]

TENSORS = Links()

# Sums and norms -------------------------------------------------------------------------------------------


@TENSORS.link
def batch_norm(chain: ChainBuilder) -> bool:
    return chain.become(chain.graph.batch_norm(chain.value, chain.shape[1]))


@TENSORS.link
def instance_norm(chain: ChainBuilder) -> bool:
    numbers = [chain.graph.uniform(chain.shape[1], low=-1, high=1) for _ in range(2)]
    return chain.add("InstanceNormalization", *numbers)


@TENSORS.link
def layer_norm(chain: ChainBuilder) -> bool:
    numbers = [chain.graph.uniform(chain.shape[3], low=-1, high=1) for _ in range(2)]
    return chain.add("LayerNormalization", *numbers, axis=-1)


@TENSORS.link
def centred(chain: ChainBuilder) -> bool:
    return chain.add("Sub", chain.op("ReduceMean", chain.integers(chain.draw(1, 2, 3)), keepdims=1))


@TENSORS.link
def reduced(chain: ChainBuilder) -> bool:
    operator, axis = chain.draw("ReduceMax", "ReduceMin", "ReduceSum", "ReduceL2"), chain.draw(1, 2, 3)
    shape = [1 if i == axis else extent for i, extent in enumerate(chain.shape)]
    return chain.add(operator, chain.integers(axis), keepdims=1, shape=shape)


@TENSORS.link
def softmax(chain: ChainBuilder) -> bool:
    return chain.add(chain.draw("Softmax", "LogSoftmax"), axis=chain.draw(1, 2, -1))


@TENSORS.link
def product(chain: ChainBuilder) -> bool:
    width = chain.shape[3]
    chain.add("MatMul", chain.graph.weight(width, 5), shape=[*chain.shape[:3], 5])
    return chain.draw(True, False) or chain.add("Add", chain.graph.weight(5))


@TENSORS.link
def gemm(chain: ChainBuilder) -> bool:
    _, channels, height, width = chain.shape
    chain.add("Reshape", chain.integers(channels * height, width))
    inputs = [chain.graph.weight(6, width), chain.graph.weight(6)]
    chain.add("Gemm", *inputs, transB=1, alpha=chain.draw(1.0, 0.5), beta=chain.draw(1.0, -1.0))
    return chain.add("Reshape", chain.integers(1, channels, height, 6), shape=[1, channels, height, 6])


# What moves elements --------------------------------------------------------------------------------------


@TENSORS.link
def pad(chain: ChainBuilder) -> bool:
    before, after = ([0, chain.draw(0, 0, 1), *(chain.draw(0, 1, 2) for _ in range(2))] for _ in range(2))
    shape = [sum(one) for one in zip(chain.shape, before, after, strict=True)]
    if chain.draw(True, True, True, False):
        return chain.add(
            "Pad", chain.integers(*before, *after), chain.floats(chain.draw(0.0, 0.0, 1.0, -2.5)), shape=shape
        )
    if any(max(pads) >= extent for *pads, extent in zip(before, after, chain.shape, strict=True)):
        return False
    return chain.add("Pad", chain.integers(*before, *after), mode=chain.draw("edge", "reflect"), shape=shape)


@TENSORS.link
def transposed(chain: ChainBuilder) -> bool:
    order = chain.draw([0, 1, 3, 2], [0, 2, 3, 1], [0, 3, 1, 2])
    return chain.add("Transpose", perm=order, shape=[chain.shape[i] for i in order])


@TENSORS.link
def reshaped(chain: ChainBuilder) -> bool:
    _, channels, height, width = chain.shape
    chain.add("Reshape", chain.integers(0, channels * height, width))
    return chain.add("Reshape", chain.integers(0, -1, height, width))


@TENSORS.link
def squeezed(chain: ChainBuilder) -> bool:
    return chain.add("Unsqueeze", chain.integers(2)) and chain.add("Squeeze", chain.integers(2))


@TENSORS.link
def sliced(chain: ChainBuilder) -> bool:
    axis, start = chain.draw(1, 2, 3), chain.draw(0, 1)
    if chain.shape[axis] < 2:
        return False
    shape = [extent - start if i == axis else extent for i, extent in enumerate(chain.shape)]
    ends = chain.integers(chain.draw(chain.shape[axis], 2**31))
    return chain.add("Slice", chain.integers(start), ends, chain.integers(axis), shape=shape)


@TENSORS.link
def gathered(chain: ChainBuilder) -> bool:
    axis = chain.draw(1, 2, 3)
    order = [int(i) for i in chain.rng.permutation(chain.shape[axis])]
    return chain.add("Gather", chain.integers(*order), axis=axis)


@TENSORS.link
def split(chain: ChainBuilder) -> bool:
    """The two parts change places."""
    axis = chain.draw(1, 2, 3)
    if chain.shape[axis] < 2:
        return False
    sizes = chain.integers(1, chain.shape[axis] - 1)
    first, second = chain.graph.ops("Split", chain.value, sizes, outputs=2, axis=axis)
    return chain.become(chain.graph.op("Concat", second, first, axis=axis))


@TENSORS.link
def joined(chain: ChainBuilder) -> bool:
    axis = chain.draw(1, 2, 3)
    shape = [2 * extent if i == axis else extent for i, extent in enumerate(chain.shape)]
    return chain.add("Concat", chain.op(chain.draw("Neg", "Relu")), axis=axis, shape=shape)


@TENSORS.link
def expanded(chain: ChainBuilder) -> bool:
    if chain.shape[1] != 1:
        return chain.add("Expand", chain.integers(1, 1, 1, 1))
    return chain.add("Expand", chain.integers(1, 3, 1, 1), shape=[1, 3, *chain.shape[2:]])


@TENSORS.link
def resized(chain: ChainBuilder) -> bool:
    _, channels, height, width = chain.shape
    scales = chain.floats([1, 1, 2, 2])
    mode = chain.draw("nearest", "linear")
    return chain.add("Resize", "", scales, mode=mode, shape=[1, channels, 2 * height, 2 * width])


@TENSORS.link
def blocks(chain: ChainBuilder) -> bool:
    """Depth becomes space, or space depth, where it can be divided."""
    _, channels, height, width = chain.shape
    if channels % 4 == 0 and chain.draw(True, False):
        return chain.add("DepthToSpace", blocksize=2, shape=[1, channels // 4, 2 * height, 2 * width])
    if height % 2 or width % 2:
        return False
    return chain.add("SpaceToDepth", blocksize=2, shape=[1, channels * 4, height // 2, width // 2])
