// Where the module and the params come from: a URL, a Response, a file of node, or bytes.
// SPDX-License-Identifier: Apache-2.0
import { EdgepackError } from "./error.js";

/** Whether it is an ArrayBuffer or a view of one; also one of another frame. */
export const isBytes = (value) =>
  ArrayBuffer.isView(value) || /^\[object (Shared)?ArrayBuffer\]$/.test(Object.prototype.toString.call(value));

/** A Uint8Array over a part of a buffer. */
export const bytesOf = (buffer, at, nbytes) => new Uint8Array(buffer, at, nbytes);

const viewOf = (value) =>
  ArrayBuffer.isView(value) ? bytesOf(value.buffer, value.byteOffset, value.byteLength) : new Uint8Array(value);

export const inNode = () => Boolean(globalThis.process?.versions?.node);

// Bundlers must not look for it, nor complain.
export const builtin = (name) => import(/* webpackIgnore: true */ /* @vite-ignore */ `node:${name}`);

/**
 * Opens a source: { name, bytes() } gives all of it, read(write) gives it piece by piece, cancel() forgets it.
 */
export async function open(given, what, signal) {
  const source = await given;
  if (isBytes(source)) return fromBytes(viewOf(source), `The ${what}`);
  if (typeof source === "string" || source instanceof URL) {
    const url = await locate(source);
    return url.protocol === "file:" ? fromFile(url, what) : fromResponse(await download(url, what, signal), what);
  }
  if (typeof source?.arrayBuffer === "function" && "body" in source) return fromResponse(source, what);
  throw new EdgepackError(
    "INPUT",
    `The ${what} must be a URL, a Response, an ArrayBuffer or a view of one, not ${typeof source}.`,
  );
}

/** The URL of a text: a relative one is meant from the page, or, in node, from the working folder. */
export async function locate(source) {
  if (source instanceof URL) return source;
  if (!inNode()) return new URL(source, globalThis.document?.baseURI ?? globalThis.location.href);
  if (/^[a-z][a-z0-9+.-]+:/i.test(source)) return new URL(source); // a drive of Windows has one letter
  return (await builtin("url")).pathToFileURL(source);
}

async function download(url, what, signal) {
  try {
    return await fetch(url, { signal });
  } catch (error) {
    throw broken(error, what, url);
  }
}

/** The error for a download that failed; one that the caller ended stays as it is. */
function broken(error, what, name) {
  if (error.name === "AbortError") return error;
  const why = error.cause?.message ?? error.message;
  return new EdgepackError("FETCH", `The ${what} cannot be fetched from ${name}: ${why}.`, { cause: error });
}

function fromBytes(bytes, name) {
  return {
    name,
    bytes: async () => bytes,
    nbytes: bytes.length,
    read: async (write) => write(bytes),
    cancel: () => {},
  };
}

function fromResponse(response, what) {
  const name = response.url || `The Response with the ${what}`;
  if (!response.ok) {
    const status = `${response.status} ${response.statusText}`.trim();
    throw new EdgepackError("FETCH", `The ${what} cannot be fetched from ${name}: ${status}.`);
  }
  if (response.bodyUsed) {
    throw new EdgepackError("FETCH", `The Response with the ${what} was read already; pass a new one.`);
  }
  return {
    name,
    response,
    bytes: () => response.arrayBuffer(),
    read: async (write) => {
      const reader = response.body.getReader();
      const next = () =>
        reader.read().catch((error) => {
          throw broken(error, what, name);
        });
      try {
        for (let piece = await next(); !piece.done; piece = await next()) write(piece.value);
      } finally {
        await reader.cancel().catch(() => {});
      }
    },
    cancel: () => response.bodyUsed || response.body?.cancel(),
  };
}

async function fromFile(url, what) {
  if (!inNode()) {
    const how = "serve the folder, for example with: python -m http.server";
    throw new EdgepackError("FETCH", `A page cannot read ${url}: ${how}.`);
  }
  const fs = await builtin("fs/promises");
  const path = (await builtin("url")).fileURLToPath(url);
  const file = await fs.open(path).catch((error) => {
    throw new EdgepackError("FETCH", `The ${what} cannot be read: ${error.message}.`, { cause: error });
  });
  return {
    name: path,
    bytes: () => file.readFile().finally(() => file.close()),
    nbytes: (await file.stat()).size,
    // Straight into the memory that `into` gives.
    readInto: async (into, nbytes, done) => {
      try {
        for (let at = 0; at < nbytes;) {
          const target = into(at, Math.min(nbytes, at + (1 << 22)));
          const { bytesRead } = await file.read(target, 0, target.length, at);
          if (bytesRead === 0) return;
          done((at += bytesRead));
        }
      } finally {
        await file.close();
      }
    },
    cancel: () => file.close().catch(() => {}),
  };
}

/** Copies a source of exactly `nbytes` to the memory that `into(start, end)` gives. */
export async function fill(source, nbytes, into, onProgress) {
  const wrong = (has) =>
    new EdgepackError(
      "PARAMS",
      `${source.name}: ${has}, the model's params have ${nbytes}; pass the file of its bundle.`,
    );
  if (source.nbytes !== undefined && source.nbytes !== nbytes) {
    source.cancel();
    throw wrong(`${source.nbytes} bytes`);
  }
  let loaded = 0;
  const advance = (at) => {
    loaded = at;
    onProgress?.(loaded, nbytes);
  };
  if (source.readInto) {
    await source.readInto(into, nbytes, advance);
  } else {
    await source.read((piece) => {
      if (loaded + piece.length > nbytes) throw wrong(`more than ${nbytes} bytes`);
      into(loaded, loaded + piece.length).set(piece);
      advance(loaded + piece.length);
    });
  }
  if (loaded !== nbytes) throw wrong(`only ${loaded} bytes`);
}
