// The side of worker.js that runs in the worker.
// SPDX-License-Identifier: Apache-2.0
import { load } from "../index.js";
import { builtin, inNode } from "./sources.js";

let model;

const calls = {
  async load(options, onProgress) {
    model = await load({ ...options, onProgress });
    return { inputs: model.inputs, outputs: model.outputs, threads: model.threads };
  },
  run: async (inputs) => model.run(inputs),
  profile: async ({ given, runs }) => model.profile(given, runs),
};

async function answer(port, { id, name, argument, progress }) {
  const onProgress = progress ? (...numbers) => port.postMessage({ progress: numbers }) : undefined;
  try {
    const result = await calls[name](argument, onProgress);
    const transfer = name === "run" ? Object.values(result).map((array) => array.buffer) : [];
    port.postMessage({ id, result, memory: model.memory }, transfer);
  } catch (error) {
    const code = error.name === "EdgepackError" ? error.code : undefined;
    port.postMessage({ id, error: { code, message: error.message } });
  }
}

// No top-level await: a page's messages would be lost before there is somebody to hear them.
if (inNode()) {
  builtin("worker_threads").then(({ parentPort }) => {
    parentPort.on("message", (message) => answer(parentPort, message));
  });
} else {
  globalThis.onmessage = ({ data }) => answer(globalThis, data);
}
