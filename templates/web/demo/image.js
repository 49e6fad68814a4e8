// An image as a model's input: float32 [1, 3, height, width], red, green and blue planes.
// SPDX-License-Identifier: Apache-2.0

const SCALES = {
  imagenet: { mean: [0.485, 0.456, 0.406], std: [0.229, 0.224, 0.225] },
  unit: { mean: [0, 0, 0], std: [1, 1, 1] },
  signed: { mean: [0.5, 0.5, 0.5], std: [0.5, 0.5, 0.5] },
  bytes: { mean: [0, 0, 0], std: [1 / 255, 1 / 255, 1 / 255] },
};

/** Whether the model takes one image. */
export const isImage = (inputs) =>
  inputs.length === 1 &&
  inputs[0].dtype === "float32" &&
  inputs[0].shape.length === 4 &&
  inputs[0].shape[0] === 1 &&
  inputs[0].shape[1] === 3;

/** Draws the largest middle part that has the canvas's proportions. */
export function draw(canvas, bitmap, width, height) {
  canvas.width = width;
  canvas.height = height;
  const scale = Math.min(bitmap.width / width, bitmap.height / height);
  const [w, h] = [width * scale, height * scale];
  const context = canvas.getContext("2d", { willReadFrequently: true });
  context.imageSmoothingQuality = "high";
  context.drawImage(bitmap, (bitmap.width - w) / 2, (bitmap.height - h) / 2, w, h, 0, 0, width, height);
}

/** The canvas's pixels as planes, normalised. */
export function pixels(canvas, scale) {
  const { mean, std } = SCALES[scale];
  const count = canvas.width * canvas.height;
  const { data } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
  return Float32Array.from({ length: 3 * count }, (_, i) => {
    const channel = Math.floor(i / count);
    return (data[4 * (i % count) + channel] / 255 - mean[channel]) / std[channel];
  });
}
