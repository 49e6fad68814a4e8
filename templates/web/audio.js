// Sound as a model's input: one channel, another sample rate, log-mel spectrograms.
// SPDX-License-Identifier: Apache-2.0
import { EdgepackError } from "./web/error.js";

/** The mean of the channels of an AudioBuffer, or of arrays of one length. */
export function toMono(sound) {
  const channels = Array.isArray(sound)
    ? sound
    : Array.from({ length: sound.numberOfChannels }, (_, at) => sound.getChannelData(at));
  if (!channels.length || channels.some((one) => one.length !== channels[0].length))
    throw wrong("Give an AudioBuffer, or channels of the same length.");
  const mono = new Float32Array(channels[0].length);
  for (let at = 0; at < mono.length; at++) {
    let sum = 0;
    for (const channel of channels) sum += channel[at];
    mono[at] = sum / channels.length;
  }
  return mono;
}

/**
 * Samples at another rate, by a sinc under a squared cosine: torchaudio's `resample` with its defaults
 * (sinc_interp_hann).
 */
export function resample(samples, from, to, { zeros = 6, rolloff = 0.99 } = {}) {
  positive({ from, to, zeros });
  const common = divisor(from, to);
  const [before, after] = [from / common, to / common];
  if (before === after) return Float32Array.from(samples);
  const cutoff = Math.min(before, after) * rolloff;
  const reach = Math.ceil((zeros * before) / cutoff);
  const kernels = Array.from({ length: after }, (_, phase) =>
    Float64Array.from({ length: 2 * reach + before }, (_, at) => {
      const time = ((at - reach) / before - phase / after) * cutoff;
      const x = Math.min(zeros, Math.max(-zeros, time));
      const window = Math.cos((x * Math.PI) / zeros / 2) ** 2;
      const sinc = x === 0 ? 1 : Math.sin(x * Math.PI) / (x * Math.PI);
      return (sinc * window * cutoff) / before;
    }),
  );
  const result = new Float32Array(Math.ceil((after * samples.length) / before));
  for (let at = 0; at < result.length; at++) {
    const kernel = kernels[at % after];
    const first = Math.floor(at / after) * before - reach;
    let sum = 0;
    for (let k = Math.max(0, -first); k < kernel.length && first + k < samples.length; k++) {
      sum += samples[first + k] * kernel[k];
    }
    result[at] = sum;
  }
  return result;
}

/** Parts of a sound, `hop` apart: [count, length], dense. What does not fill a part at the end is left out. */
export function frames(samples, length, hop) {
  positive({ length, hop });
  const count = samples.length < length ? 0 : 1 + Math.floor((samples.length - length) / hop);
  const data = new Float32Array(count * length);
  for (let at = 0; at < count; at++) data.set(samples.subarray(at * hop, at * hop + length), at * length);
  return { data, shape: [count, length] };
}

export function logMel(samples, options) {
  const { sampleRate, fftSize, hop, mels } = options;
  const { windowSize = fftSize, minHz = 0, maxHz = sampleRate / 2, center = true, power = 2 } = options;
  const { melScale = "slaney", norm = melScale === "slaney", log = "ln", floor = 1e-10, layout = "mel" } = options;
  positive({ sampleRate, fftSize, hop, mels, windowSize });
  if (windowSize > fftSize) throw wrong(`windowSize is ${windowSize}, more than fftSize ${fftSize}.`);
  if (!(log in LOGS)) throw wrong(`log is ${log}: give ${Object.keys(LOGS).join(", ")}.`);
  const bank = melFilters({ sampleRate, fftSize, mels, minHz, maxHz, melScale, norm });
  const parts = frames(center ? reflected(samples, fftSize >> 1) : Float32Array.from(samples), fftSize, hop);
  const window = hann(windowSize, fftSize);
  const spectrum = transform(fftSize);
  const bins = (fftSize >> 1) + 1;
  const count = parts.shape[0];
  const data = new Float32Array(count * mels);
  const windowed = new Float64Array(fftSize);
  const energy = new Float64Array(bins);
  for (let at = 0; at < count; at++) {
    for (let k = 0; k < fftSize; k++) windowed[k] = parts.data[at * fftSize + k] * window[k];
    spectrum(windowed, energy);
    if (power !== 2) for (let k = 0; k < bins; k++) energy[k] **= power / 2;
    for (let m = 0; m < mels; m++) {
      let sum = 0;
      for (let k = 0; k < bins; k++) sum += bank[m * bins + k] * energy[k];
      data[layout === "mel" ? m * count + at : at * mels + m] = LOGS[log](Math.max(sum, floor));
    }
  }
  return { data, shape: layout === "mel" ? [mels, count] : [count, mels] };
}

const LOGS = { ln: Math.log, log10: Math.log10, db: (value) => 10 * Math.log10(value) };

/** Triangles over the bins of a spectrum, [mels, fftSize / 2 + 1]: as librosa's and torchaudio's. */
export function melFilters({ sampleRate, fftSize, mels, minHz = 0, maxHz = sampleRate / 2, melScale = "slaney", norm }) {
  if (!(melScale in SCALES)) throw wrong(`melScale is ${melScale}: give slaney or htk.`);
  if (!(minHz >= 0 && minHz < maxHz && maxHz <= sampleRate / 2))
    throw wrong(`minHz ${minHz} and maxHz ${maxHz} must rise, to half of sampleRate at most.`);
  const { toMel, toHz } = SCALES[melScale];
  const [low, high] = [toMel(minHz), toMel(maxHz)];
  const edges = Array.from({ length: mels + 2 }, (_, at) => toHz(low + ((high - low) * at) / (mels + 1)));
  const bins = (fftSize >> 1) + 1;
  const bank = new Float64Array(mels * bins);
  for (let m = 0; m < mels; m++) {
    const [left, middle, right] = edges.slice(m, m + 3);
    const height = (norm ?? melScale === "slaney") ? 2 / (right - left) : 1;
    for (let k = 0; k < bins; k++) {
      const hz = (k * sampleRate) / fftSize;
      const inside = Math.min((hz - left) / (middle - left), (right - hz) / (right - middle));
      bank[m * bins + k] = Math.max(0, inside) * height;
    }
  }
  return bank;
}

/** HTK's is logarithmic; Slaney's is linear up to 1000 Hz. */
const SCALES = {
  htk: {
    toMel: (hz) => 2595 * Math.log10(1 + hz / 700),
    toHz: (mel) => 700 * (10 ** (mel / 2595) - 1),
  },
  slaney: {
    toMel: (hz) => (hz < 1000 ? (3 * hz) / 200 : 15 + (27 * Math.log(hz / 1000)) / Math.log(6.4)),
    toHz: (mel) => (mel < 15 ? (200 * mel) / 3 : 1000 * Math.exp((Math.log(6.4) * (mel - 15)) / 27)),
  },
};

/** Hann's window, periodic, in the middle of the transform. */
function hann(length, size) {
  const window = new Float64Array(size);
  const first = (size - length) >> 1;
  for (let at = 0; at < length; at++) window[first + at] = 0.5 - 0.5 * Math.cos((2 * Math.PI * at) / length);
  return window;
}

function reflected(samples, margin) {
  if (samples.length <= margin) throw wrong(`center needs more than ${margin} samples; there are ${samples.length}.`);
  const last = samples.length - 1;
  return Float32Array.from({ length: samples.length + 2 * margin }, (_, at) => {
    const from = Math.abs(at - margin);
    return samples[from > last ? 2 * last - from : from];
  });
}

/** Writes the squared magnitudes of a real signal's spectrum: a fast transform for powers of two, else a sum for each bin. */
function transform(size) {
  const cos = Float64Array.from({ length: size }, (_, at) => Math.cos((2 * Math.PI * at) / size));
  const sin = Float64Array.from({ length: size }, (_, at) => Math.sin((2 * Math.PI * at) / size));
  if (size & (size - 1)) {
    return (signal, energy) => {
      for (let bin = 0; bin < energy.length; bin++) {
        let [re, im] = [0, 0];
        for (let at = 0, turn = 0; at < size; at++, turn = (turn + bin) % size) {
          re += signal[at] * cos[turn];
          im -= signal[at] * sin[turn];
        }
        energy[bin] = re * re + im * im;
      }
    };
  }
  const bits = Math.log2(size);
  const swapped = Uint32Array.from({ length: size }, (_, at) => {
    let turned = 0;
    for (let bit = 0; bit < bits; bit++) turned |= ((at >> bit) & 1) << (bits - 1 - bit);
    return turned;
  });
  const re = new Float64Array(size);
  const im = new Float64Array(size);
  return (signal, energy) => {
    for (let at = 0; at < size; at++) re[at] = signal[swapped[at]];
    im.fill(0);
    for (let half = 1; half < size; half *= 2) {
      const step = size / (2 * half);
      for (let start = 0; start < size; start += 2 * half) {
        for (let k = 0; k < half; k++) {
          const [a, b, turn] = [start + k, start + k + half, k * step];
          const x = re[b] * cos[turn] + im[b] * sin[turn];
          const y = im[b] * cos[turn] - re[b] * sin[turn];
          [re[b], im[b]] = [re[a] - x, im[a] - y];
          [re[a], im[a]] = [re[a] + x, im[a] + y];
        }
      }
    }
    for (let bin = 0; bin < energy.length; bin++) energy[bin] = re[bin] * re[bin] + im[bin] * im[bin];
  };
}

function divisor(a, b) {
  while (b) [a, b] = [b, a % b];
  return a;
}

function positive(values) {
  for (const [name, value] of Object.entries(values)) {
    if (!(value > 0 && Number.isInteger(value))) throw wrong(`${name} is ${value}: give a whole number above 0.`);
  }
}

const wrong = (message) => new EdgepackError("INPUT", message);
