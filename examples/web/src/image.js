export const WIDTH = 64, HEIGHT = 48;
const NAMES = ["plain", "horizontal", "vertical"];

/** A canvas' bytes (red, green, blue, alpha) as the model's input: float32[1, 3, 48, 64], from 0 to 1. */
export function tensor(pixels) {
  const image = new Float32Array(3 * WIDTH * HEIGHT);
  for (let i = 0; i < WIDTH * HEIGHT; i++) {
    for (let channel = 0; channel < 3; channel++) {
      image[channel * WIDTH * HEIGHT + i] = pixels[4 * i + channel] / 255;
    }
  }
  return image;
}

/** The class with the highest probability, and that. */
export function verdict(classes) {
  const best = classes.indexOf(Math.max(...classes));
  return `${NAMES[best]} (${classes[best].toFixed(3)})`;
}
