// Runs a WASI program: node node_wasi.mjs PROGRAM.wasm FOLDER ARGV0 [ARGUMENT...]
// The program may open files in FOLDER, which is its current one, and nothing else.
import { readFile } from "node:fs/promises";
import { setFlagsFromString } from "node:v8";
import { WASI } from "node:wasi";

// node's WASI functions are called as V8's "fast API calls". With these, node 20.20 and 22.23 crashed (SIGSEGV)
// at the end of four of five runs of a program that reads files of 2 MB; without them never.
setFlagsFromString("--no-turbo-fast-api-calls");

const [path, folder, ...args] = process.argv.slice(2);
const wasi = new WASI({
  version: "preview1",
  args,
  env: {},
  preopens: { ".": folder },
  returnOnExit: true,
});
const imports = { wasi_snapshot_preview1: wasi.wasiImport };
const module = await WebAssembly.compile(await readFile(path));
const instance = await WebAssembly.instantiate(module, imports);
process.exitCode = wasi.start(instance);
