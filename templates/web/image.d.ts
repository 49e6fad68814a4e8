// Types of image.js. SPDX-License-Identifier: Apache-2.0
import type { Tensor } from "./web/runtime.js";

/** RGBA bytes, row by row: ImageData is one. Alpha is not looked at. */
export interface Pixels {
  readonly data: Uint8ClampedArray | Uint8Array;
  readonly width: number;
  readonly height: number;
}

export interface ImageOptions {
  /** Scale to [height, width], or the shorter side to this length; the middle is cropped. Default: the input's size. */
  resize?: number | readonly [height: number, width: number];
  /** Default: NCHW where the first size after the batch is 1 or 3, else NHWC. */
  layout?: "NCHW" | "NHWC";
  /** Default: "rgb". */
  order?: "rgb" | "bgr";
  /** Bytes are multiplied by it first. Default: 1 / 255. */
  scale?: number;
  /** Is subtracted then, for each channel. Default: 0. */
  mean?: number | readonly number[];
  /** And divided by. Default: 1. */
  std?: number | readonly number[];
  /** Of an input of integers: value / scale + zeroPoint. uint8 without any option takes the bytes as they are. */
  quantization?: { readonly scale: number; readonly zeroPoint?: number };
}

export declare const IMAGENET: { readonly mean: readonly number[]; readonly std: readonly number[] };

/** The array that `run` takes for an input of one image. Throws an EdgepackError ("INPUT"). */
export declare function imageToTensor(
  image: Pixels | CanvasImageSource,
  input: Tensor & { readonly dtype: "uint8" },
  options?: ImageOptions,
): Uint8Array;
export declare function imageToTensor(
  image: Pixels | CanvasImageSource,
  input: Tensor & { readonly dtype: "int8" },
  options?: ImageOptions,
): Int8Array;
export declare function imageToTensor(
  image: Pixels | CanvasImageSource,
  input: Tensor,
  options?: ImageOptions,
): Float32Array;

/** RGB bytes of another size, as Pillow's `Image.resize(size, BILINEAR)` computes them, bit for bit. */
export declare function resize(
  image: { readonly data: Uint8ClampedArray | Uint8Array; readonly width: number; readonly height: number },
  width: number,
  height: number,
): Uint8ClampedArray | Uint8Array;
