// Emscripten 3 would fetch its WebAssembly from the path of a file, which node's fetch refuses.
delete globalThis.fetch;
