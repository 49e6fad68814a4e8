// Loads and runs a WebAssembly module of edgepack: in pages, workers and node; it needs nothing else.
// SPDX-License-Identifier: Apache-2.0
import { ARRAYS } from "./dtypes.js";
import { EdgepackError } from "./error.js";
import { bytesOf, fill, isBytes, open } from "./sources.js";
import { checkNoThreads, threadsOrOne } from "./threads.js";

export { EdgepackError };

// (func (result v128) i32.const 0 i8x16.splat): valid only where there is SIMD.
const SIMD = Uint8Array.of(
  ...[0, 97, 115, 109, 1, 0, 0, 0, 1, 5, 1, 96, 0, 1, 123, 3, 2, 1, 0],
  ...[10, 8, 1, 6, 0, 65, 0, 253, 15, 11],
);

/** Loads the model of a description (index.js has it) and makes a session. */
export async function loadModel(description, options = {}) {
  const { check = false, onProgress, signal } = options;
  const params = options.params ?? description.params?.();
  checkEngine(description);
  if (params === undefined && !description.embedded) {
    const what = `Its params come from the caller: load({ params }), with a URL, a Response or bytes of the file`;
    throw new EdgepackError("PARAMS", `${what} params/${description.name}.params of the bundle.`);
  }
  const { threaded } = description;
  const threads = threaded ? await threadsOrOne(threaded.threads, options.threads) : 1;
  // Both downloads run side by side.
  const opened = params === undefined ? undefined : open(params, "params", signal);
  opened?.catch(() => {}); // it is awaited below, if the module is one
  let exports;
  try {
    exports = await begin(description, options, threads);
    const source = await opened;
    const at = source === undefined ? 0 : await place(exports, source, description.paramsBytes, onProgress);
    return new Model(description, exports, at, check);
  } catch (error) {
    exports?.end?.();
    opened?.then((source) => source.cancel()).catch(() => {});
    throw error;
  }
}

/** The functions and memory of the module for so many threads. If nobody asked for these, one is better than none. */
async function begin(description, { wasm, signal, threads: asked }, threads) {
  const start = async (from, count) => {
    const module = await compile(wasm ?? from.wasm(), description, signal);
    return (description.instantiate ?? instantiate)(module, description, asked, count);
  };
  if (threads === 1) return start(description, 1);
  try {
    return await start(description.threaded, threads);
  } catch (error) {
    const missing = error.code === "WORKER" || error.code === "EP_E_NO_MEMORY";
    if (!missing || asked !== undefined || wasm !== undefined) throw error;
    console.warn(`${description.name} computes on one thread. ${error.message}`);
    return start(description, 1);
  }
}

function checkEngine({ features }) {
  if (typeof WebAssembly !== "object") {
    throw new EdgepackError("ENGINE", "This engine has no WebAssembly.");
  }
  if (features.includes("simd128") && !WebAssembly.validate(SIMD)) {
    const since = "Chrome 91, Edge 91, Firefox 89, Safari 16.4 and node 16.4 have it, and all newer ones";
    throw new EdgepackError("ENGINE", `This engine has no WebAssembly SIMD, which the model needs: ${since}.`);
  }
}

async function compile(wasm, { features }, signal) {
  if (wasm instanceof WebAssembly.Module) return wasm;
  const source = await open(wasm, "module", signal);
  try {
    // Only a body of this type is compiled while it arrives.
    const streams = source.response?.headers.get("content-type")?.startsWith("application/wasm");
    if (streams && WebAssembly.compileStreaming) return await WebAssembly.compileStreaming(source.response);
    return await WebAssembly.compile(await source.bytes());
  } catch (error) {
    if (!(error instanceof WebAssembly.CompileError)) throw error;
    const needs = features.length ? ` It needs an engine with ${features.join(", ")}.` : "";
    const what = `${source.name} cannot be compiled: ${error.message}.${needs}`;
    throw new EdgepackError("ENGINE", what, { cause: error });
  }
}

/** The error for a module that takes other imports. */
export function notIts(error, name) {
  if (!(error instanceof WebAssembly.LinkError || error instanceof TypeError)) return error;
  return new EdgepackError("ENGINE", `This is not the module of ${name}: ${error.message}.`, { cause: error });
}

async function instantiate(module, { name, threaded }, asked, threads) {
  try {
    // With threads the memory is shared, and imported.
    const shared = WebAssembly.Module.imports(module).some(({ kind }) => kind === "memory");
    if (shared && threaded) return await (await threaded.pool()).startPool(module, threaded, threads);
    checkNoThreads(asked);
    const instance = await WebAssembly.instantiate(module, { edgepack: { now: () => performance.now() } });
    instance.exports._initialize();
    return instance.exports;
  } catch (error) {
    throw notIts(error, name);
  }
}

/** Writes the params into the module's memory as they arrive; the address. */
async function place(wasm, source, nbytes, onProgress) {
  const at = wasm.ep_allocate(nbytes) >>> 0;
  if (at === 0) {
    throw new EdgepackError("EP_E_NO_MEMORY", `The engine has no memory for ${nbytes} bytes of params.`);
  }
  // A view is made for each piece: memory that grows gets another buffer.
  await fill(source, nbytes, (start, end) => bytesOf(wasm.memory.buffer, at + start, end - start), onProgress);
  return at;
}

function text(wasm, address) {
  const all = new Uint8Array(wasm.memory.buffer);
  const at = address >>> 0;
  return new TextDecoder().decode(all.slice(at, all.indexOf(0, at))); // a copy: it takes no shared memory
}

function statusError(wasm, status) {
  return new EdgepackError(text(wasm, wasm.ep_name_of(status)), text(wasm, wasm.ep_text_of(status)));
}

/** A model with a session: runs on the thread that it was loaded in. */
class Model {
  #description;
  #wasm;
  #params;
  #at;

  constructor(description, wasm, params, check) {
    const status = wasm.ep_allocate(4) >>> 0;
    if (status === 0) throw new EdgepackError("EP_E_NO_MEMORY", "The engine has no memory left.");
    const nbytes = params === 0 ? 0 : description.paramsBytes;
    this.#at = wasm.ep_create(params, nbytes, check ? 1 : 0, status, wasm.threads ?? 0) >>> 0;
    const code = new Int32Array(wasm.memory.buffer, status, 1)[0];
    wasm.ep_release(status);
    if (this.#at === 0) throw statusError(wasm, code);
    this.#description = description;
    this.#wasm = wasm;
    this.#params = params;
  }

  get inputs() {
    return this.#description.inputs;
  }

  get outputs() {
    return this.#description.outputs;
  }

  /** How many threads compute. */
  get threads() {
    return this.#live().threads ?? 1;
  }

  /** Bytes: of the params, of the arena, and of all memory that the module has. */
  get memory() {
    const wasm = this.#live();
    return {
      params: this.#description.paramsBytes,
      arena: wasm.ep_arena_bytes() >>> 0,
      total: wasm.memory.buffer.byteLength,
    };
  }

  /** Runs the model once; new arrays by the outputs' names. */
  run(inputs) {
    const wasm = this.#write(inputs);
    this.#run(wasm);
    return Object.fromEntries(
      this.outputs.map(({ name, dtype, length }, i) => {
        // A copy: it outlives the next run.
        const view = new ARRAYS[dtype](wasm.memory.buffer, wasm.ep_output(this.#at, i) >>> 0, length);
        return [name, view.slice()];
      }),
    );
  }

  /** The time of each step in microseconds, the median of some runs. */
  async profile(inputs, runs = 10) {
    if (!Number.isInteger(runs) || runs < 1) throw new EdgepackError("INPUT", `${runs} runs cannot be measured.`);
    const { steps } = await this.#description.steps();
    const wasm = this.#write(inputs);
    const at = wasm.ep_allocate(8 * steps.length) >>> 0;
    if (at === 0) throw new EdgepackError("EP_E_NO_MEMORY", "The engine has no memory left.");
    const times = [];
    try {
      wasm.ep_profile(this.#at, at);
      for (let i = 0; i < runs; i++) {
        this.#run(wasm);
        times.push(Array.from(new BigUint64Array(wasm.memory.buffer, at, steps.length), Number));
      }
    } finally {
      wasm.ep_profile(this.#at, 0);
      wasm.ep_release(at);
    }
    return steps.map((step, k) => ({ ...step, us: median(times.map((run) => run[k])) / 1000 }));
  }

  /** Gives all memory back; the model cannot be used any more. */
  dispose() {
    if (this.#wasm === null) return;
    this.#wasm.ep_destroy(this.#at);
    this.#wasm.ep_release(this.#params);
    this.#wasm.end?.();
    this.#wasm = null;
  }

  #live() {
    if (this.#wasm === null) throw new EdgepackError("DISPOSED", "The model was disposed; load it again.");
    return this.#wasm;
  }

  #run(wasm) {
    const status = wasm.ep_run(this.#at);
    if (status !== 0) throw statusError(wasm, status);
  }

  #write(given) {
    this.#live();
    const arrays = inputsOf(this.inputs, given);
    // Again: to read what was given may be to run its code (a getter), which may dispose of the model.
    const wasm = this.#live();
    arrays.forEach((array, i) => {
      bytesOf(wasm.memory.buffer, wasm.ep_input(this.#at, i) >>> 0, array.byteLength).set(array);
    });
    return wasm;
  }
}

function median(values) {
  values.sort((a, b) => a - b);
  return (values[(values.length - 1) >> 1] + values[values.length >> 1]) / 2;
}

/** The bytes of what was given, each read once, in the model's order. */
function inputsOf(inputs, given) {
  const names = inputs.map(({ name }) => name);
  const keys = given === null || typeof given !== "object" || isBytes(given) ? [] : Object.keys(given);
  const wrong = [
    ...names.filter((name) => !keys.includes(name)).map((name) => `${name} is missing`),
    ...keys.filter((key) => !names.includes(key)).map((key) => `${key} is unknown`),
  ];
  if (wrong.length > 0) {
    throw new EdgepackError(
      "INPUT",
      `The inputs are not the model's: ${wrong.join(", ")}; it has ${names.join(", ")}.`,
    );
  }
  return inputs.map(({ name, dtype, shape, length }) => {
    const array = given[name];
    const wanted = ARRAYS[dtype].name;
    // By its tag: an array of another frame or realm is no instance of this one's class.
    const kind = ArrayBuffer.isView(array) ? array[Symbol.toStringTag] : undefined;
    if (kind !== wanted) {
      const got = kind ?? (Array.isArray(array) ? "a plain array" : typeof array);
      throw new EdgepackError("INPUT", `Input ${name} is ${got}; the model takes ${dtype} in a ${wanted}.`);
    }
    if (array.length !== length) {
      const takes = `the model takes ${length} (${shape.join(" x ") || "a scalar"})`;
      throw new EdgepackError("INPUT", `Input ${name} has ${array.length} elements; ${takes}.`);
    }
    return bytesOf(array.buffer, array.byteOffset, length * ARRAYS[dtype].BYTES_PER_ELEMENT);
  });
}
