"""Models of one operator each, drawn by a seed: opset, attributes, types, ranks, sizes, special values."""
