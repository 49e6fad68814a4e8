// As much of WASI (preview 1) as a program needs that reads files, prints, and looks at the clock.
// https://github.com/WebAssembly/WASI/blob/main/legacy/preview1/docs.md. SPDX-License-Identifier: Apache-2.0

const [OK, BADF, INVAL, NOENT, NOSYS, ROFS] = [0, 8, 28, 44, 52, 69];
const [UNKNOWN, DIRECTORY, REGULAR] = [0, 3, 4];
const FOLDER = 3; // the first file that is not a standard stream: the folder that the program may open
const CREATES = 1 | 8; // O_CREAT, O_TRUNC

/** What proc_exit throws. */
export class Exit extends Error {
  constructor(code) {
    super(`exit ${code}`);
    this.code = code;
  }
}

/** Functions to import; `bind` gives them the memory. `read(path)` is a file's bytes or null. */
export function wasi(args, read, print) {
  let memory;
  const view = () => new DataView(memory.buffer);
  const bytes = (at, nbytes) => new Uint8Array(memory.buffer, at, nbytes);
  const u32 = (at, value) => (view().setUint32(at, value, true), OK);
  const u64 = (at, value) => (view().setBigUint64(at, BigInt(value), true), OK);

  const texts = args.map((text) => new TextEncoder().encode(`${text}\0`));
  const files = new Map(); // descriptor -> { data, at }
  let next = FOLDER + 1;

  const typeOf = (fd) => (fd < FOLDER ? UNKNOWN : fd === FOLDER ? DIRECTORY : files.has(fd) ? REGULAR : null);

  /** The parts of a list of buffers. */
  const parts = (list, count) =>
    Array.from({ length: count }, (_, i) => [
      view().getUint32(list + 8 * i, true),
      view().getUint32(list + 8 * i + 4, true),
    ]);

  const imports = {
    args_sizes_get(count, size) {
      u32(count, texts.length);
      return u32(
        size,
        texts.reduce((sum, text) => sum + text.length, 0),
      );
    },
    args_get(list, buffer) {
      for (const text of texts) {
        u32(list, buffer);
        bytes(buffer, text.length).set(text);
        list += 4;
        buffer += text.length;
      }
      return OK;
    },
    environ_sizes_get: (count, size) => u32(count, 0) || u32(size, 0),
    environ_get: () => OK,
    clock_time_get: (id, _precision, at) => u64(at, Math.round((id === 0 ? Date.now() : performance.now()) * 1e6)),
    fd_fdstat_get(fd, at) {
      const type = typeOf(fd);
      if (type === null) return BADF;
      bytes(at, 24).fill(0);
      bytes(at, 1)[0] = type;
      bytes(at + 8, 16).fill(255); // all rights
      return OK;
    },
    fd_fdstat_set_flags: () => OK,
    fd_filestat_get(fd, at) {
      const type = typeOf(fd);
      if (type === null) return BADF;
      bytes(at, 64).fill(0);
      bytes(at + 16, 1)[0] = type;
      return u64(at + 32, files.get(fd)?.data.length ?? 0);
    },
    fd_prestat_get: (fd, at) => (fd === FOLDER ? u32(at, 0) || u32(at + 4, 1) : BADF),
    fd_prestat_dir_name: (fd, at) => (fd === FOLDER ? ((bytes(at, 1)[0] = 46), OK) : BADF), // "."
    path_open(_folder, _lookup, at, nbytes, open, _rights, _inherited, _flags, result) {
      if (open & CREATES) return ROFS;
      const data = read(new TextDecoder().decode(bytes(at, nbytes)));
      if (data === null) return NOENT;
      files.set(next, { data, at: 0 });
      return u32(result, next++);
    },
    fd_read(fd, list, count, result) {
      const file = files.get(fd);
      if (file === undefined) return BADF;
      let done = 0;
      for (const [at, nbytes] of parts(list, count)) {
        const piece = file.data.subarray(file.at, file.at + nbytes);
        bytes(at, piece.length).set(piece);
        file.at += piece.length;
        done += piece.length;
      }
      return u32(result, done);
    },
    fd_seek(fd, offset, whence, result) {
      const file = files.get(fd);
      if (file === undefined) return BADF;
      const to = [0, file.at, file.data.length][whence] + Number(offset);
      if (!(to >= 0)) return INVAL;
      file.at = to;
      return u64(result, to);
    },
    fd_write(fd, list, count, result) {
      if (fd !== 1 && fd !== 2) return BADF;
      let done = 0;
      for (const [at, nbytes] of parts(list, count)) {
        if (nbytes > 0) print(fd, bytes(at, nbytes).slice());
        done += nbytes;
      }
      return u32(result, done);
    },
    fd_close: (fd) => (files.delete(fd) ? OK : BADF),
    proc_exit(code) {
      throw new Exit(code);
    },
  };
  return {
    // A function that is not here says so when it is called.
    imports: new Proxy(imports, { get: (all, name) => all[name] ?? (() => NOSYS) }),
    bind: (made) => (memory = made),
  };
}
