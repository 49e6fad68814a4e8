// Runs a WASI program: node node_wasi.mjs PROGRAM.wasm FOLDER ARGV0 [ARGUMENT...]
// The program may open files in FOLDER, which is its current one, and nothing else.
import { readFile } from "node:fs/promises";
import { WASI } from "node:wasi";

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
