// Starts a module that Emscripten linked, by the script that it wrote for it.
// SPDX-License-Identifier: Apache-2.0
import { notIts } from "./runtime.js";
import { checkNoThreads, countThreads } from "./threads.js";

/** The module's functions and memory, how many threads compute, and what ends these. */
export async function start(module, { name, threads: most }, asked, script) {
  if (most === 1) checkNoThreads(asked);
  const threads = most === 1 ? 1 : await countThreads(most, asked);
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
