// Uses an npm package of Emscripten: node package_emscripten.mjs ARGUMENTS, where ARGUMENTS is JSON. Prints what it saw,
// and must end by itself: no thread keeps node alive.
import { readFile } from "node:fs/promises";
import { load } from "ds_cnn-wasm";
import { loadInWorker } from "ds_cnn-wasm/worker";

const given = JSON.parse(process.argv[2]);
const file = await readFile(`${given.bundle}/test/input_0.bin`);
const mfcc = new Float32Array(new Uint8Array(file).buffer);

const refusal = (work) =>
  work().then(
    () => null,
    (error) => [error.code, error.message],
  );

const values = {};
const seen = { values, workers: {}, refused: [] };
const options = given.most > 1 ? { default: {}, one: { threads: 1 }, three: { threads: 3 } } : { default: {} };
for (const [name, option] of Object.entries(options)) {
  const model = await load({ ...option, check: true });
  seen.workers[name] = model.threads - 1;
  for (let i = 0; i < 20; i++) values[name] = Array.from(model.run({ mfcc }).words);
  seen.memory = model.memory;
  seen.steps = (await model.profile({ mfcc }, 2)).length;
  model.dispose();
  seen.after = await refusal(async () => model.run({ mfcc }));
}
const remote = await loadInWorker(given.most > 1 ? { threads: 2 } : {});
values.worker = Array.from((await remote.run({ mfcc })).words);
remote.dispose();
for (const threads of given.most > 1 ? [0, 2.5, "2", 1000] : [2]) {
  seen.refused.push(await refusal(() => load({ threads })));
}
// (module): none of the functions that the model's has.
const empty = await WebAssembly.compile(Uint8Array.of(0, 97, 115, 109, 1, 0, 0, 0));
seen.other = await refusal(() => load({ wasm: empty }));
await load(); // and not disposed of
console.log(JSON.stringify(seen));
