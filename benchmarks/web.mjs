// Times WebAssembly engines on one network, taking turns in this process: node web.mjs JOB.json. Prints a line of
// JSON with the milliseconds of every run. JOB: {"seconds", "input", "engines": [{"name", "kind", ...}]}; web.py
// writes it.
import { readFile } from "node:fs/promises";
import { pathToFileURL } from "node:url";

const job = JSON.parse(await readFile(process.argv[2], "utf-8"));
const pixels = new Float32Array((await readFile(job.input.file)).buffer.slice(0));

// An engine is a function that runs the network once and gives its output.
const engines = {
  async edgepack({ module, params }) {
    const { instance } = await WebAssembly.instantiate(await readFile(module), {
      edgepack: { now: () => performance.now() },
    });
    const wasm = instance.exports;
    wasm._initialize();
    const file = await readFile(params);
    const at = wasm.ep_allocate(file.length);
    new Uint8Array(wasm.memory.buffer, at, file.length).set(file);
    const status = wasm.ep_allocate(4);
    const model = wasm.ep_create(at, file.length, 0, status);
    if (model === 0) throw new Error(`status ${new Int32Array(wasm.memory.buffer, status, 1)[0]}`);
    return async () => {
      new Float32Array(wasm.memory.buffer, wasm.ep_input(model, 0), pixels.length).set(pixels);
      if (wasm.ep_run(model) !== 0) throw new Error("the run failed");
      const nbytes = wasm.ep_output_bytes(model, 0);
      return new Float32Array(wasm.memory.buffer, wasm.ep_output(model, 0), nbytes / 4).slice();
    };
  },

  // An npm package, as a page uses it.
  async package({ index, threads }) {
    const { load, outputs } = await import(pathToFileURL(index));
    const model = await load({ threads });
    return async () => model.run({ [job.input.name]: pixels })[outputs[0].name];
  },

  async onnxruntime({ library, model, threads = 1 }) {
    const ort = await import(pathToFileURL(library));
    ort.env.wasm.numThreads = threads;
    ort.env.logLevel = "error";
    const session = await ort.InferenceSession.create(model, {
      executionProviders: ["wasm"],
      graphOptimizationLevel: "all",
    });
    return async () => {
      const feeds = { [job.input.name]: new ort.Tensor("float32", pixels, job.input.shape) };
      const results = await session.run(feeds);
      return results[session.outputNames[0]].data;
    };
  },
};

const timed = async (run) => {
  const before = performance.now();
  await run();
  return performance.now() - before;
};

const largest = (values) => values.reduce((most, value) => Math.max(most, Math.abs(value)), 0);

const turns = [];
let reference = null;
for (const engine of job.engines) {
  const before = performance.now();
  const run = await engines[engine.kind](engine);
  const load_ms = performance.now() - before;
  const output = await run();
  reference ??= output;
  const error = largest(output.map((value, i) => value - reference[i])) / largest(reference);
  // V8 replaces the code of its quick compiler while a module runs.
  for (let i = 0; i < 5; i++) await run();
  turns.push({ name: engine.name, run, error, load_ms, runs_ms: [] });
}
const until = performance.now() + job.seconds * 1000;
while (performance.now() < until) {
  turns.sort(() => Math.random() - 0.5);
  for (const turn of turns) {
    await turn.run(); // what the engine before left in the caches is not this one's fault
    for (let i = 0; i < 3; i++) turn.runs_ms.push(await timed(turn.run));
  }
}
const results = turns.map(({ run, ...seen }) => seen);
// A pipe takes 64 KB at a time: the process ends when all is written.
process.stdout.write(JSON.stringify(results) + "\n", () => process.exit(0));
