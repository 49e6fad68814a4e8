// Types that all models share. SPDX-License-Identifier: Apache-2.0

export type Dtype =
  | "bool"
  | "int8"
  | "uint8"
  | "int16"
  | "uint16"
  | "int32"
  | "uint32"
  | "int64"
  | "uint64"
  | "float16"
  | "bfloat16"
  | "float32"
  | "float64";

/** An input or output. */
export interface Tensor {
  readonly name: string;
  readonly dtype: Dtype;
  readonly shape: readonly number[];
  /** How many elements it has. */
  readonly length: number;
}

/** A status of the C side (docs/reference/c-api.md of edgepack), or one of this package's own. */
export type ErrorCode =
  | `EP_E_${string}`
  /** The engine lacks what the module needs. */
  | "ENGINE"
  /** A file cannot be fetched or read. */
  | "FETCH"
  /** The params are not this model's, or were not given. */
  | "PARAMS"
  /** A wrong argument. */
  | "INPUT"
  /** The model was disposed. */
  | "DISPOSED"
  /** The worker ended. */
  | "WORKER";

export declare class EdgepackError extends Error {
  readonly code: ErrorCode;
}

/** A relative URL is meant from the page; in node, from the working folder. */
export type Source = string | URL | Response | Promise<Response> | ArrayBuffer | ArrayBufferView;

export interface LoadOptions {
  /** The params file; by default the one of this package. */
  params?: Source;
  /** The module; by default the one of this package. */
  wasm?: Source | WebAssembly.Module;
  /** Called while the params arrive. */
  onProgress?: (loadedBytes: number, totalBytes: number) => void;
  /** Hash the params, to find a byte that changed on the way. Default: false. */
  check?: boolean;
  /** Ends the downloads. */
  signal?: AbortSignal;
}

/** In bytes. */
export interface Memory {
  /** The params. */
  readonly params: number;
  /** All intermediate tensors. */
  readonly arena: number;
  /** All memory that the module has: params, arena, inputs, outputs, stack. */
  readonly total: number;
}

/** One step of the model, a kernel. */
export interface StepTime {
  readonly kernel: string;
  readonly rule: string;
  /** The model's nodes that it computes. */
  readonly nodes: readonly string[];
  /** Microseconds, the median of the runs. */
  readonly us: number;
}

/** A model with a session: runs on the thread that it was loaded in. */
export interface Model<Inputs, Outputs> {
  readonly inputs: readonly Tensor[];
  readonly outputs: readonly Tensor[];
  readonly memory: Memory;
  /** How many threads compute. */
  readonly threads: number;
  /** Runs the model once, and returns when it is done. Throws an {@link EdgepackError}. */
  run(inputs: Inputs): Outputs;
  /** The time of each step. Browsers round their clock; more runs (default 10) make up for that. */
  profile(inputs: Inputs, runs?: number): Promise<StepTime[]>;
  /** Gives all memory back. */
  dispose(): void;
}
