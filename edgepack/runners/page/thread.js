// Runs a WASI program: its arguments, a JSON list, are in the address; the first is its path among the files.
// SPDX-License-Identifier: Apache-2.0
import { Exit, wasi } from "./wasi.js";

const args = JSON.parse(decodeURIComponent(location.search.slice(1)));
const root = new URL("../", import.meta.url);

/** Sends what was printed at once: who gives up on the program wants to know how far it came. */
function post(name, body) {
  const request = new XMLHttpRequest();
  request.open("POST", new URL(name, root), false);
  request.send(body);
}

/** The contents of a file; null if there is none. */
function read(path) {
  const request = new XMLHttpRequest();
  request.open("GET", new URL(`files/${path.split("/").map(encodeURIComponent).join("/")}`, root), false);
  request.responseType = "arraybuffer";
  request.send();
  return request.status === 200 ? new Uint8Array(request.response) : null;
}

async function run() {
  const program = read(args[0]);
  if (program === null) throw new Error(`${args[0]} was not found`);
  const { imports, bind } = wasi(args, read, (fd, bytes) => post(fd === 1 ? "stdout" : "stderr", bytes));
  const { instance } = await WebAssembly.instantiate(program, { wasi_snapshot_preview1: imports });
  bind(instance.exports.memory);
  try {
    instance.exports._start();
  } catch (error) {
    if (error instanceof Exit) return error.code;
    throw error;
  }
  return 0;
}

run()
  .catch((error) => {
    post("stderr", `${error}\n`);
    return 134; // as a shell says it of a program that aborted
  })
  .then((code) => post("end", String(code)));
