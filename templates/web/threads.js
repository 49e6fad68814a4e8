// How many threads compute, and whether this page, worker or node can have them.
// SPDX-License-Identifier: Apache-2.0
import { EdgepackError } from "./error.js";
import { builtin, inNode } from "./sources.js";

const HEADERS = "Cross-Origin-Opener-Policy: same-origin and Cross-Origin-Embedder-Policy: require-corp";

/** Whether threads can share memory: always in node, in a page if it is isolated from others. */
const canShare = () => typeof SharedArrayBuffer !== "undefined" && globalThis.crossOriginIsolated !== false;

/** Refuses threads of a module without. */
export function checkNoThreads(asked) {
  if (check(asked) === undefined || asked === 1) return;
  throw new EdgepackError("INPUT", "This model has one thread: it is small, or was packed for a device without more.");
}

/** Of a module that has threads and can do without: what was asked for, or what there is, but at most `most`. */
export async function threadsOrOne(most, asked) {
  return check(asked) === undefined && !canShare() ? 1 : countThreads(most, asked);
}

/** The same of a module that cannot do without. */
export async function countThreads(most, asked) {
  if (check(asked) === 1) return 1;
  if (!canShare()) {
    throw new EdgepackError("ENGINE", `Threads need a page that is isolated: serve it with ${HEADERS}.`);
  }
  return asked ?? Math.min(most, await available());
}

function check(asked) {
  if (asked === undefined || (Number.isInteger(asked) && asked >= 1 && asked <= 64)) return asked;
  throw new EdgepackError("INPUT", `${asked} threads cannot compute: give a whole number from 1 to 64.`);
}

async function available() {
  if (!inNode()) return globalThis.navigator?.hardwareConcurrency ?? 1;
  const os = await builtin("os");
  return os.availableParallelism?.() ?? os.cpus().length;
}
