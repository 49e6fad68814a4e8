// An image as a model's input: scaled, cropped, normalised, in the input's layout and type.
// SPDX-License-Identifier: Apache-2.0
import { ARRAYS } from "./web/dtypes.js";
import { EdgepackError } from "./web/error.js";

/** Mean and deviation of ImageNet's images, which most of its models were trained with. */
export const IMAGENET = { mean: [0.485, 0.456, 0.406], std: [0.229, 0.224, 0.225] };

const RANGES = { uint8: [0, 255], int8: [-128, 127] };
/** Bits behind the point of a resampling weight: those of Pillow, so that results are the same bytes. */
const PRECISION = 22;

export function imageToTensor(image, input, options = {}) {
  const { layout, channels, height, width } = place(input, options.layout);
  const picture = pixelsOf(image);
  const [tall, wide] = sizeOf(options.resize ?? [height, width], picture);
  if (tall < height || wide < width)
    throw wrong(`The image is scaled to ${wide} x ${tall}, less than the input's ${width} x ${height}.`);
  const scaled = resize(picture, wide, tall);
  const top = halfToEven((tall - height) / 2);
  const left = halfToEven((wide - width) / 2);
  const convert = converter(input.dtype, channels, options);
  const tensor = new ARRAYS[input.dtype](channels * height * width);
  const order = options.order === "bgr" ? [2, 1, 0] : [0, 1, 2];
  for (let y = 0; y < height; y++) {
    for (let x = 0; x < width; x++) {
      const from = 3 * ((top + y) * wide + left + x);
      const pixel = y * width + x;
      for (let c = 0; c < channels; c++) {
        const value = channels === 1 ? luma(scaled, from) : scaled[from + order[c]];
        tensor[layout === "NCHW" ? c * height * width + pixel : pixel * channels + c] = convert(value, c);
      }
    }
  }
  return tensor;
}

/** RGB bytes of another size: Pillow's `resize` with BILINEAR, bit for bit. Rows are scaled before columns. */
export function resize({ data, width, height }, wide, tall) {
  let source = data;
  if (wide !== width) source = along(source, height, width, wide, 3 * width, 3, 3 * wide);
  if (tall === height) return source;
  const columns = new Uint8ClampedArray(3 * wide * tall);
  pass(source, columns, wide, weights(height, tall), 3, 3 * wide, 3, 3 * wide);
  return columns;
}

function along(source, rows, from, to, sourceRow, step, targetRow) {
  const target = new Uint8ClampedArray(rows * targetRow);
  pass(source, target, rows, weights(from, to), sourceRow, step, targetRow, step);
  return target;
}

/** Every line's weighted sums; a line's pixels are `step` apart in the source, and lines `line`. */
function pass(source, target, lines, table, line, step, targetLine, targetStep) {
  for (let row = 0; row < lines; row++) {
    table.forEach(({ first, parts }, at) => {
      for (let c = 0; c < 3; c++) {
        let sum = 1 << (PRECISION - 1);
        for (let k = 0; k < parts.length; k++) sum += source[row * line + (first + k) * step + c] * parts[k];
        target[row * targetLine + at * targetStep + c] = sum >> PRECISION;
      }
    });
  }
}

/** For each pixel of the result, the first of those that it is made of, and their weights in fixed point. */
function weights(from, to) {
  const scale = from / to;
  const support = Math.max(scale, 1);
  return Array.from({ length: to }, (_, at) => {
    const center = (at + 0.5) * scale;
    const first = Math.max(0, Math.trunc(center - support + 0.5));
    const end = Math.min(from, Math.trunc(center + support + 0.5));
    const plain = Array.from({ length: end - first }, (_, k) =>
      Math.max(0, 1 - Math.abs((k + first - center + 0.5) * (1 / support))),
    );
    const sum = plain.reduce((all, one) => all + one, 0);
    return { first, parts: plain.map((one) => Math.trunc(0.5 + (one / sum) * (1 << PRECISION))) };
  });
}

/** Height and width that the image is scaled to: a pair, or the length of its shorter side. */
function sizeOf(size, { width, height }) {
  const ok = (one) => Number.isInteger(one) && one > 0;
  if (Array.isArray(size) && size.length === 2 && size.every(ok)) return size;
  if (!ok(size)) throw wrong(`resize is ${size}: give [height, width], or the length of the shorter side.`);
  const long = Math.trunc((size * Math.max(width, height)) / Math.min(width, height));
  return width <= height ? [long, size] : [size, long];
}

function place(input, asked) {
  const { shape, name, dtype } = input;
  const sizes = shape.length === 4 ? shape.slice(1) : shape;
  const is = (count) => count === 1 || count === 3;
  if (sizes.length !== 3 || (shape.length === 4 && shape[0] !== 1) || !(dtype in RANGES || dtype === "float32"))
    throw wrong(`The input "${name}" takes no single image of float32, uint8 or int8: it is ${dtype} [${shape}].`);
  const layout = asked ?? (is(sizes[0]) ? "NCHW" : "NHWC");
  const [channels, height, width] = layout === "NCHW" ? sizes : [sizes[2], sizes[0], sizes[1]];
  if ((layout !== "NCHW" && layout !== "NHWC") || !is(channels))
    throw wrong(`The input "${name}" of [${shape}] has no 1 or 3 channels in the layout ${layout}.`);
  return { layout, channels, height, width };
}

/** RGB bytes of what a browser has of an image, or of `{ data, width, height }` with RGBA bytes. */
function pixelsOf(image) {
  const { data, width, height } = image?.data ? image : drawn(image);
  if (data.length !== 4 * width * height)
    throw wrong(`${width} x ${height} pixels of RGBA are ${4 * width * height} bytes, not ${data.length}.`);
  const rgb = new Uint8ClampedArray(3 * width * height);
  for (let at = 0; at < width * height; at++) {
    for (let c = 0; c < 3; c++) rgb[3 * at + c] = data[4 * at + c];
  }
  return { data: rgb, width, height };
}

function drawn(image) {
  const width = image?.naturalWidth ?? image?.videoWidth ?? image?.displayWidth ?? image?.width;
  const height = image?.naturalHeight ?? image?.videoHeight ?? image?.displayHeight ?? image?.height;
  if (!width || !height || typeof OffscreenCanvas === "undefined")
    throw wrong("Give an image, canvas, ImageBitmap, video frame or ImageData, or { data, width, height } with RGBA bytes.");
  const context = new OffscreenCanvas(width, height).getContext("2d", { willReadFrequently: true });
  context.drawImage(image, 0, 0);
  return context.getImageData(0, 0, width, height);
}

/** ITU-R 601-2, as Pillow's convert("L"). */
const luma = (data, at) => (data[at] * 19595 + data[at + 1] * 38470 + data[at + 2] * 7471 + 0x8000) >> 16;

/** From a byte to an element of the tensor. */
function converter(dtype, channels, { mean, std, scale, quantization }) {
  const range = RANGES[dtype];
  const plain = [mean, std, scale, quantization].every((one) => one === undefined);
  if (dtype === "uint8" && plain) return (value) => value;
  if (range && !quantization)
    throw wrong(`${dtype} needs quantization: { scale, zeroPoint }, the input's in the model.`);
  const factor = scale ?? 1 / 255;
  const means = perChannel(mean ?? 0, channels, "mean");
  const deviations = perChannel(std ?? 1, channels, "std");
  const normal = (value, c) => (value * factor - means[c]) / deviations[c];
  if (!range) return normal;
  const { scale: step, zeroPoint = 0 } = quantization;
  const [least, most] = range;
  return (value, c) => Math.min(most, Math.max(least, halfToEven(normal(value, c) / step) + zeroPoint));
}

function perChannel(given, channels, what) {
  const values = typeof given === "number" ? Array(channels).fill(given) : Array.from(given);
  if (values.length !== channels || !values.every(Number.isFinite))
    throw wrong(`${what} has ${values.length} values; the input has ${channels} channels.`);
  return values;
}

function halfToEven(value) {
  const down = Math.floor(value);
  const rest = value - down;
  return rest > 0.5 || (rest === 0.5 && down % 2 !== 0) ? down + 1 : down;
}

const wrong = (message) => new EdgepackError("INPUT", message);
