// Loads a module that Emscripten made: module_emscripten.mjs MODULE.mjs PARAMS FOLDER. FOLDER has input_0.bin; the
// output is written beside it as got_0.bin.
import { readFile, writeFile } from "node:fs/promises";
import { createRequire } from "node:module";
import { dirname, join } from "node:path";
import { pathToFileURL } from "node:url";

const [path, paramsPath, folder] = process.argv.slice(2);
// Emscripten 3 takes node for one without ES modules, and would fetch a file's path.
globalThis.__dirname = dirname(path);
globalThis.require = createRequire(import.meta.url);
delete globalThis.fetch;
const { default: make } = await import(pathToFileURL(path));
const wasm = await make({ locateFile: (name) => join(dirname(path), name) });
const file = await readFile(paramsPath);
const params = wasm._ep_allocate(file.length);
wasm.HEAPU8.set(file, params);
const status = wasm._ep_allocate(4);
const model = wasm._ep_create(params, file.length, 1, status);
if (model === 0) throw new Error(`status ${wasm.HEAP32[status / 4]}`);
wasm.HEAPU8.set(await readFile(`${folder}/input_0.bin`), wasm._ep_input(model, 0));
if (wasm._ep_run(model) !== 0) throw new Error("the run failed");
const at = wasm._ep_output(model, 0);
await writeFile(`${folder}/got_0.bin`, wasm.HEAPU8.slice(at, at + wasm._ep_output_bytes(model, 0)));
wasm._ep_destroy(model);
process.exit(0); // whatever threads there are
