// The page's code in node, on a picture that is drawn here.
import { load } from "stripes-wasm";
import { HEIGHT, WIDTH, tensor, verdict } from "./src/image.js";

const pixels = new Uint8ClampedArray(4 * WIDTH * HEIGHT);
for (let i = 0; i < pixels.length; i++) {
  pixels[i] = i % 4 === 3 ? 255 : Math.floor(i / 4) % WIDTH % 8 < 4 ? 50 : 200;
}
const model = await load();
console.log(verdict(model.run({ image: tensor(pixels) }).classes));
model.dispose();
