// Runs a program of Emscripten: node node_emscripten.cjs PROGRAM.cjs [ARGUMENT...]
// Emscripten 3 would fetch its WebAssembly from the path of a file, which node's fetch refuses.
delete globalThis.fetch;
process.argv.splice(1, 1);
require(process.argv[1]);
