// Loads a module of edgepack as a page does: module.mjs MODULE PARAMS FOLDER. FOLDER has input_<i>.bin; the outputs
// are written beside them as got_<i>.bin. Prints what it saw as JSON.
import { readFile, writeFile } from "node:fs/promises";

const [path, paramsPath, folder] = process.argv.slice(2);
const { instance } = await WebAssembly.instantiate(await readFile(path), {
  edgepack: { now: () => performance.now() },
});
const wasm = instance.exports;
wasm._initialize();

const bytes = (at, nbytes) => new Uint8Array(wasm.memory.buffer, at, nbytes);
const text = (at) => {
  const all = new Uint8Array(wasm.memory.buffer);
  return new TextDecoder().decode(all.subarray(at, all.indexOf(0, at)));
};

const create = (params, nbytes) => {
  const status = wasm.ep_allocate(4);
  const made = wasm.ep_create(params, nbytes, 1, status);
  const code = new Int32Array(wasm.memory.buffer, status, 1)[0];
  wasm.ep_release(status);
  return { made, code };
};

let params = 0;
let nbytes = 0;
let damaged = null;
if (paramsPath !== "-") {
  const file = await readFile(paramsPath);
  nbytes = file.length;
  params = wasm.ep_allocate(nbytes);
  bytes(params, nbytes).set(file);
  bytes(params, nbytes)[nbytes - 1] ^= 1;
  const { made, code } = create(params, nbytes);
  damaged = [made, text(wasm.ep_name_of(code)), text(wasm.ep_text_of(code))];
  bytes(params, nbytes)[nbytes - 1] ^= 1;
}

const model = create(params, nbytes).made;
const profile = wasm.ep_allocate(8 * wasm.ep_steps());
wasm.ep_profile(model, profile);
let inputs = 0;
for (; wasm.ep_input(model, inputs) !== 0; inputs++) {
  const data = await readFile(`${folder}/input_${inputs}.bin`);
  bytes(wasm.ep_input(model, inputs), wasm.ep_input_bytes(model, inputs)).set(data);
}
const statuses = [wasm.ep_run(model), wasm.ep_profile(model, 0), wasm.ep_run(model)];
let outputs = 0;
for (; wasm.ep_output(model, outputs) !== 0; outputs++) {
  await writeFile(
    `${folder}/got_${outputs}.bin`,
    bytes(wasm.ep_output(model, outputs), wasm.ep_output_bytes(model, outputs)),
  );
}
const times = Array.from(new BigUint64Array(wasm.memory.buffer, profile, wasm.ep_steps()), Number);
const beyond = [wasm.ep_input_bytes(model, inputs), wasm.ep_output_bytes(model, outputs)];
wasm.ep_destroy(model);
wasm.ep_destroy(0);

// Another instance of the model finds the memory of the first one free.
const before = wasm.memory.buffer.byteLength;
for (let i = 0; i < 20; i++) wasm.ep_destroy(create(params, nbytes).made);
const grown = wasm.memory.buffer.byteLength - before;
console.log(JSON.stringify({ damaged, inputs, outputs, statuses, times, beyond, grown, arena: wasm.ep_arena_bytes() }));
