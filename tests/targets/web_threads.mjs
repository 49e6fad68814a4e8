// Uses an npm package that has a module with threads: node web_threads.mjs CASE ARGUMENTS, where ARGUMENTS is JSON.
// Prints what it saw as JSON, and must end by itself: no thread keeps node alive.
import { readFile } from "node:fs/promises";

const [name, json] = process.argv.slice(2);
const given = JSON.parse(json);
const file = await readFile(`${given.bundle}/test/input_0.bin`);
const x = new Float32Array(new Uint8Array(file).buffer);
if (name === "alone") delete globalThis.SharedArrayBuffer;
const { load } = await import("wide-wasm");
const { loadInWorker } = await import("wide-wasm/worker");

const failure = (work) =>
  work().then(
    () => null,
    (error) => [error.code ?? error.name, error.message],
  );

const cases = {
  async threads() {
    const models = {};
    for (const [kind, options] of Object.entries({
      default: {},
      one: { threads: 1 },
      three: { threads: 3 },
      module: { wasm: `${given.bundle}/lib/wide-threads.wasm`, threads: 2 },
    })) {
      const model = await load({ ...options, check: true });
      const runs = Array.from({ length: 8 }, () => String(model.run({ x }).y));
      const [values] = runs;
      const us = (await model.profile({ x }, 2)).map((step) => step.us);
      const seen = { threads: model.threads, values: values.split(",").map(Number), us, memory: model.memory };
      model.dispose();
      const after = await failure(async () => model.run({ x }));
      models[kind] = { ...seen, same: runs.every((run) => run === values), after };
    }
    const remote = await loadInWorker({ threads: 2 });
    models.worker = { threads: remote.threads, values: Array.from((await remote.run({ x })).y) };
    remote.dispose();
    const refused = [];
    for (const threads of [0, 2.5, "2", 65]) refused.push(await failure(() => load({ threads })));
    const one = await failure(() => load({ wasm: `${given.bundle}/lib/wide.wasm`, threads: 2 }));
    await load(); // and not disposed of
    return { models, refused, one };
  },

  async alone() {
    const model = await load();
    const { threads } = model;
    return { threads, values: Array.from(model.run({ x }).y), asked: await failure(() => load({ threads: 2 })) };
  },

  // The package's worker was changed: its clock, which a worker asks at the end of a step that is timed, throws.
  async trapped() {
    const model = await load({ threads: 2 });
    let error = null;
    for (let i = 0; i < 3000 && error === null; i++) error = await failure(() => model.profile({ x }, 10));
    return { error, after: await failure(async () => model.run({ x })) };
  },

  async missing() {
    const warned = [];
    console.warn = (text) => warned.push(text);
    const model = await load();
    const { threads } = model;
    return { threads, values: Array.from(model.run({ x }).y), warned, error: await failure(() => load({ threads: 2 })) };
  },
};

console.log(JSON.stringify(await cases[name]()));
