"""WebAssembly files: what browsers, node and WASI engines load."""
