// Loads and runs the model in a worker of its own, so that the page stays responsive.
// SPDX-License-Identifier: Apache-2.0
import { EdgepackError } from "./web/error.js";
import { builtin, inNode, locate } from "./web/sources.js";

/** Starts a worker and loads the model in it. */
export async function loadInWorker({ onProgress, ...options } = {}) {
  const remote = await start(onProgress);
  try {
    const { inputs, outputs, threads } = await remote.call("load", await absolute(options), []);
    return {
      inputs,
      outputs,
      threads,
      get memory() {
        return remote.memory();
      },
      run: async (given, { transfer = false } = {}) => remote.call("run", given, transfer ? buffers(given) : []),
      profile: (given, runs) => remote.call("profile", { given, runs }, []),
      dispose: () => remote.end("DISPOSED", "The model was disposed; load it again."),
    };
  } catch (error) {
    remote.end("WORKER", error.message);
    throw error;
  }
}

/** The worker, and a call that waits for its answer. */
async function start(onProgress) {
  const waiting = new Map();
  let memory;
  let next = 0;
  let ended = null;
  const end = (code, message) => {
    ended ??= new EdgepackError(code, message);
    worker.terminate();
    for (const { reject } of waiting.values()) reject(ended);
    waiting.clear();
  };
  const receive = ({ id, progress, result, error, memory: now }) => {
    if (progress) return onProgress?.(...progress);
    const call = waiting.get(id);
    waiting.delete(id);
    memory = now ?? memory;
    if (error === undefined) return call?.resolve(result);
    call?.reject(error.code ? new EdgepackError(error.code, error.message) : new Error(error.message));
  };
  const failed = (error) => end("WORKER", `The worker ended: ${error?.message ?? "it cannot be started"}.`);
  let worker;
  if (inNode()) {
    const { Worker: NodeWorker } = await builtin("worker_threads");
    worker = new NodeWorker(new URL(/* webpackIgnore: true */ "./web/thread.js", import.meta.url));
    worker.on("message", receive);
    worker.on("error", failed);
  } else {
    // Bundlers find the worker by exactly this form.
    worker = new Worker(new URL("./web/thread.js", import.meta.url), { type: "module" });
    worker.onmessage = ({ data }) => receive(data);
    worker.onerror = failed;
  }
  const call = (name, argument, transfer) =>
    new Promise((resolve, reject) => {
      if (ended) return reject(ended);
      const id = next++;
      worker.postMessage({ id, name, argument, progress: Boolean(onProgress) }, transfer);
      waiting.set(id, { resolve, reject });
    });
  return { call, end, memory: () => memory };
}

/** URLs as texts that mean the same in the worker. */
async function absolute(options) {
  const resolved = { ...options };
  for (const key of ["params", "wasm"]) {
    const source = options[key];
    if (typeof source === "string" || source instanceof URL) resolved[key] = (await locate(source)).href;
  }
  return resolved;
}

const buffers = (arrays) => [
  ...new Set(
    Object.values(arrays)
      .filter(ArrayBuffer.isView)
      .map(({ buffer }) => buffer),
  ),
];
