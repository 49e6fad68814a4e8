// Uses an npm package of edgepack as its users do: node package.mjs CASE PACKAGE ARGUMENTS, where ARGUMENTS is JSON.
// Lies in a project in which the package is installed; prints what it saw as JSON.
import { readFile } from "node:fs/promises";
import { pathToFileURL } from "node:url";

const [name, packageName, json] = process.argv.slice(2);
const given = JSON.parse(json ?? "{}");
const { load, inputs, outputs, EdgepackError } = await import(packageName);
const { loadInWorker } = await import(`${packageName}/worker`);

const ARRAYS = { bool: Uint8Array, int64: BigInt64Array, float16: Uint16Array, float32: Float32Array };

async function recorded() {
  const arrays = {};
  for (const [i, { name, dtype }] of inputs.entries()) {
    const file = await readFile(`${given.bundle}/test/input_${i}.bin`);
    arrays[name] = new ARRAYS[dtype](new Uint8Array(file).buffer);
  }
  return arrays;
}

const plain = (arrays) =>
  Object.fromEntries(
    Object.entries(arrays).map(([name, array]) => [name, [array.constructor.name, Array.from(array, Number)]]),
  );

async function failure(work) {
  try {
    await work();
    return null;
  } catch (error) {
    return [error instanceof EdgepackError ? error.code : error.constructor.name, error.message];
  }
}

const cases = {
  async run() {
    const progress = [];
    const model = await load({ check: true, onProgress: (...now) => progress.push(now) });
    const first = model.run(await recorded());
    const kept = plain(first);
    for (const array of Object.values(first)) array.fill(typeof array[0] === "bigint" ? 7n : 7);
    const again = plain(model.run(await recorded()));
    const { memory } = model;
    const steps = await model.profile(await recorded(), 3);
    // A getter is code of the caller's, in the middle of a run.
    const closing = { ...(await recorded()) };
    const [firstName] = Object.keys(closing);
    const array = closing[firstName];
    Object.defineProperty(closing, firstName, { enumerable: true, get: () => (model.dispose(), array) });
    const during = await failure(() => model.run(closing));
    model.dispose();
    const after = await failure(() => model.run({}));
    return { inputs, outputs, kept, again, memory, progress, steps, during, after };
  },

  async wrongInputs() {
    const model = await load();
    const right = (await recorded()).input;
    const wrong = [
      undefined,
      { image: right },
      { input: Array.from(right) },
      { input: new Float64Array(right) },
      { input: right.subarray(1) },
      right,
    ];
    const seen = await Promise.all(wrong.map((inputs) => failure(() => model.run(inputs))));
    const runs = await failure(() => model.profile({ input: right }, 0));
    return { seen, runs, still: plain(model.run({ input: right })) };
  },

  async sources() {
    const bytes = await readFile(given.params);
    const padded = new Uint8Array(bytes.length + 3);
    padded.set(bytes, 3);
    const sources = {
      path: given.params,
      file: pathToFileURL(given.params),
      url: `${given.server}/params`,
      response: fetch(`${given.server}/params`),
      stream: new Response(new Blob([bytes]).stream()),
      bytes,
      buffer: new Uint8Array(bytes).buffer,
      view: padded.subarray(3),
    };
    const seen = {};
    for (const [kind, params] of Object.entries(sources)) {
      const progress = [];
      const model = await load({ params, check: true, onProgress: (...now) => progress.push(now) });
      seen[kind] = { values: plain(model.run(await recorded())), pieces: progress.length, last: progress.at(-1) };
    }
    const module = await WebAssembly.compile(await readFile(given.wasm));
    for (const wasm of [
      given.wasm,
      await readFile(given.wasm),
      module,
      `${given.server}/module`,
      `${given.server}/untyped`,
    ]) {
      const model = await load({ wasm });
      seen[`wasm ${seen.length}`] = { values: plain(model.run(await recorded())) };
    }
    return seen;
  },

  async wrongSources() {
    const bytes = new Uint8Array(await readFile(given.params));
    const changed = bytes.slice();
    changed[changed.length - 1] ^= 1;
    const used = new Response("x");
    await used.text();
    const ended = new AbortController();
    ended.abort();
    const seen = {};
    const wrong = {
      none: { params: "nowhere/net.params" },
      404: { params: `${given.server}/nothing` },
      closed: { params: given.closed },
      short: { params: bytes.subarray(1) },
      cut: { params: `${given.server}/cut` },
      broken: { params: `${given.server}/broken` },
      page: { params: `${given.server}/page` },
      long: { params: new Response(new Blob([bytes, bytes]).stream()) },
      zeros: { params: new ArrayBuffer(bytes.length) },
      changed: { params: changed, check: true },
      number: { params: 5 },
      used: { params: used },
      aborted: { params: `${given.server}/params`, signal: ended.signal },
      "wasm page": { wasm: `${given.server}/page` },
      "wasm program": { wasm: given.program },
    };
    for (const [kind, options] of Object.entries(wrong)) seen[kind] = await failure(() => load(options));
    WebAssembly.validate = () => false;
    seen.simd = await failure(load);
    return seen;
  },

  async caller() {
    const missing = await failure(load);
    const model = await load({ params: await readFile(given.params) });
    return { missing, values: plain(model.run(await recorded())) };
  },

  async worker() {
    const progress = [];
    const model = await loadInWorker({ onProgress: (...now) => progress.push(now) });
    const inputs = await recorded();
    const kept = plain(await model.run(inputs));
    const before = inputs.input.length;
    await model.run(inputs, { transfer: true });
    const after = inputs.input.length;
    const wrong = await failure(() => model.run({ input: new Float32Array(2) }));
    const steps = await model.profile(await recorded(), 1);
    const { memory } = model;
    const running = model.run(await recorded());
    model.dispose();
    const ended = [await failure(() => running), await failure(() => model.run({}))];
    const missing = await failure(() => loadInWorker({ params: "nowhere/net.params" }));
    return { kept, before, after, wrong, steps: steps.length, memory, ended, missing, progress: progress.at(-1) };
  },
};

console.log(JSON.stringify(await cases[name]()));
