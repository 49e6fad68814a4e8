// A thread of a module whose memory is shared: computes what the one that runs the model hands out, until it is
// terminated. SPDX-License-Identifier: Apache-2.0
import { builtin, inNode } from "./sources.js";

async function serve({ module, memory, variables, stack, origin }, ready) {
  // The clock of the thread that runs the model: each begins with its own thread.
  const now = () => performance.timeOrigin - origin + performance.now();
  const { exports } = await WebAssembly.instantiate(module, { env: { memory }, edgepack: { now } });
  exports.__stack_pointer.value = stack;
  exports.__wasm_init_tls(variables);
  ready();
  try {
    exports.ep_serve();
  } catch (error) {
    exports.ep_trapped(); // nobody is to wait for it
    throw error;
  }
}

// No top-level await: a page's messages would be lost before there is somebody to hear them.
if (inNode()) {
  builtin("worker_threads").then(({ parentPort }) => {
    parentPort.once("message", (message) => serve(message, () => parentPort.postMessage(null)));
  });
} else {
  globalThis.onmessage = ({ data }) => serve(data, () => postMessage(null));
}
