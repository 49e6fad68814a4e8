// Starts a module that Emscripten linked, by the script that it wrote for it.
// SPDX-License-Identifier: Apache-2.0
import { EdgepackError } from "./error.js";
import { checkNoThreads, notIts } from "./runtime.js";
import { builtin, inNode } from "./sources.js";

/** The module's functions and memory, how many threads compute, and what ends these. */
export async function start(module, { name, threads: most }, asked, script) {
  const threads = await countThreads(most, asked);
  const { default: make } = await script();
  let memory;
  let exports;
  const running = await new Promise((resolve, reject) => {
    const failed = (error) => {
      options.PThread?.terminateAllThreads();
      reject(notIts(error, name));
    };
    const instantiateWasm = (imports, receive) => {
      // With threads the memory is shared, and comes from the script.
      memory = Object.values(imports).flatMap(Object.values).find((one) => one instanceof WebAssembly.Memory);
      WebAssembly.instantiate(module, imports)
        .then((instance) => {
          exports = instance.exports;
          if (!exports.ep_create) throw new TypeError("it has no ep_create");
          receive(instance, module);
        })
        .catch(failed);
      return {};
    };
    // The first thread is this one. A script that was made for workers waits for one at least.
    const options = { instantiateWasm, edgepackWorkers: Math.max(1, threads - 1) };
    make(options).then(resolve, failed); // which adds what it exports to them
  });
  // They wait for work as long as the model lives: node need not wait for them.
  running.PThread?.unusedWorkers.forEach((worker) => worker.unref?.());
  const end = () => running.PThread?.terminateAllThreads();
  return { ...exports, memory: memory ?? exports.memory, threads, end };
}

/** As many as the machine has, but no more than were packed for: the default of a model with threads. */
async function countThreads(most, asked) {
  if (most === 1) {
    checkNoThreads(asked);
    return 1;
  }
  if (typeof SharedArrayBuffer === "undefined") {
    const headers = "Cross-Origin-Opener-Policy: same-origin and Cross-Origin-Embedder-Policy: require-corp";
    throw new EdgepackError("ENGINE", `Threads need a page that is isolated: serve it with ${headers}.`);
  }
  if (asked === undefined) return Math.min(most, await available());
  if (Number.isInteger(asked) && asked >= 1 && asked <= 64) return asked;
  throw new EdgepackError("INPUT", `${asked} threads cannot compute: give a whole number from 1 to 64.`);
}

async function available() {
  if (!inNode()) return globalThis.navigator?.hardwareConcurrency ?? 1;
  const os = await builtin("os");
  return os.availableParallelism?.() ?? os.cpus().length;
}
