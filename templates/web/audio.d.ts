// Types of audio.js. SPDX-License-Identifier: Apache-2.0

type Samples = Float32Array;

/** Dense and row-major. */
export interface Matrix {
  readonly data: Float32Array;
  readonly shape: readonly [number, number];
}

/** The mean of all channels: of an AudioBuffer, or of arrays of the same length. */
export declare function toMono(sound: AudioBuffer | readonly Samples[]): Float32Array;

/** Samples at another rate (whole numbers of Hz), by a windowed sinc: torchaudio's `resample`, whose defaults these are. */
export declare function resample(
  samples: Samples,
  from: number,
  to: number,
  options?: {
    /** Zero crossings on each side: torchaudio's lowpass_filter_width. Default: 6. */
    zeros?: number;
    /** Of the lower rate's half, what passes. Default: 0.99. */
    rolloff?: number;
  },
): Float32Array;

/** Parts of `length` samples, `hop` apart; what does not fill one at the end is left out. */
export declare function frames(samples: Samples, length: number, hop: number): Matrix;

export interface MelOptions {
  sampleRate: number;
  /** Samples of a transform; powers of two are fast. */
  fftSize: number;
  mels: number;
  /** Default: 0. */
  minHz?: number;
  /** Default: half of sampleRate. */
  maxHz?: number;
  /** Default: "slaney", which librosa has; torchaudio's is "htk". */
  melScale?: "slaney" | "htk";
  /** Whether each filter's area is 1. Default: with "slaney". */
  norm?: boolean;
}

export interface LogMelOptions extends MelOptions {
  hop: number;
  /** Samples of Hann's window, in the middle of a transform. Default: fftSize. */
  windowSize?: number;
  /** Whether frames are around each hop, the ends reflected. Default: true. */
  center?: boolean;
  /** Of magnitudes: 2 or 1. Default: 2. */
  power?: number;
  /** Default: "ln"; "db" is ten times "log10". */
  log?: "ln" | "log10" | "db";
  /** The least value that the logarithm is taken of. Default: 1e-10. */
  floor?: number;
  /** "mel": [mels, frames]; "time": [frames, mels]. Default: "mel". */
  layout?: "mel" | "time";
}

/** A log-mel spectrogram. Throws an EdgepackError ("INPUT"). */
export declare function logMel(samples: Samples, options: LogMelOptions): Matrix;

/** The filters of `logMel`: [mels, fftSize / 2 + 1]. */
export declare function melFilters(options: MelOptions): Float64Array;
