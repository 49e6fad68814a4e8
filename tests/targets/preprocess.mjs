// Calls a function of image.js or audio.js: `node preprocess.mjs MODULE FUNCTION FILE`, whose arguments are JSON.
// {"bytes": [...]} stands for a Uint8ClampedArray, {"floats": [...]} for a Float32Array.
import { readFileSync } from "node:fs";

const [module, name, file] = process.argv.slice(2);
const revive = (_, value) =>
  value?.bytes ? Uint8ClampedArray.from(value.bytes) : value?.floats ? Float32Array.from(value.floats) : value;
const given = JSON.parse(readFileSync(file, "utf8"), revive);
const functions = await import(`./${module}.js`);
try {
  const result = functions[name](...given);
  const array = ArrayBuffer.isView(result) ? result : result.data;
  const kind = array.constructor.name;
  process.stdout.write(JSON.stringify({ kind, shape: result.shape, values: Array.from(array) }));
} catch (error) {
  process.stdout.write(JSON.stringify({ code: error.code, message: error.message }));
}
