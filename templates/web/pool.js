// Starts a module whose memory is shared, and workers that compute in it too: its threads but the first, which is who
// runs the model. SPDX-License-Identifier: Apache-2.0
import { EdgepackError } from "./error.js";
import { builtin, inNode } from "./sources.js";

const PAGE = 65536;
// As much as the first thread has.
const STACK = 256 * 1024;

/** The module's functions and memory, how many threads compute, and what ends them. */
export async function startPool(module, { pages, memoryBytes, threadBytes }, threads) {
  const bytes = memoryBytes + threads * (threadBytes + STACK);
  const memory = makeMemory(pages, bytes);
  const origin = performance.timeOrigin;
  const imports = { env: { memory }, edgepack: { now: () => performance.now() } };
  const { exports } = await WebAssembly.instantiate(module, imports);
  exports._initialize();
  exports.ep_may_sleep(globalThis.document === undefined ? 1 : 0);
  const workers = [];
  const end = () => workers.forEach((worker) => worker.terminate());
  try {
    const started = [];
    for (let i = 1; i < threads; i++) {
      // The variables of the thread lie below its stack, which grows down.
      const variables = exports.ep_allocate(exports.__tls_size.value + STACK) >>> 0;
      if (variables === 0) throw noMemory(bytes);
      const top = variables + exports.__tls_size.value + STACK;
      const stack = top - (top % 16);
      started.push(startWorker({ module, memory, variables, stack, origin }, workers));
    }
    await Promise.all(started);
  } catch (error) {
    end();
    throw error;
  }
  return { ...exports, memory, threads, end };
}

const noMemory = (bytes) => new EdgepackError("EP_E_NO_MEMORY", `The engine has no ${bytes} bytes of shared memory.`);

/** Engines reserve all that it may grow to; the module's allocator rounds large pieces up to a power of two. */
function makeMemory(pages, bytes) {
  const maximum = Math.min(65536, pages + 256 + 2 * Math.ceil(bytes / PAGE));
  try {
    return new WebAssembly.Memory({ initial: pages, maximum, shared: true });
  } catch {
    throw noMemory(maximum * PAGE);
  }
}

/** Starts a worker that serves, and adds it to `workers`. */
async function startWorker(message, workers) {
  try {
    const worker = await makeWorker();
    workers.push(worker);
    const on = (name, receive) => (worker.on ? worker.on(name, receive) : worker.addEventListener(name, receive));
    await new Promise((resolve, reject) => {
      on("message", resolve);
      on("error", reject);
      worker.postMessage(message);
    });
    worker.unref?.(); // it waits for work as long as the model lives: node need not wait for it
  } catch (error) {
    const why = error?.message || "its script cannot be loaded";
    const what = `A thread cannot be started: ${why}. load({ threads: 1 }) needs none.`;
    throw new EdgepackError("WORKER", what, { cause: error });
  }
}

async function makeWorker() {
  if (inNode()) {
    const { Worker: NodeWorker } = await builtin("worker_threads");
    return new NodeWorker(new URL(/* webpackIgnore: true */ "./pool_worker.js", import.meta.url));
  }
  // Bundlers find the worker by exactly this form.
  return new Worker(new URL("./pool_worker.js", import.meta.url), { type: "module" });
}
