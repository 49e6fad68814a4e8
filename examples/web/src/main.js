import { loadInWorker } from "stripes-wasm/worker";
import { HEIGHT, WIDTH, tensor, verdict } from "./image.js";

const context = document.querySelector("#canvas").getContext("2d", { willReadFrequently: true });
const result = document.querySelector("#result");

async function show(model) {
  const { data } = context.getImageData(0, 0, WIDTH, HEIGHT);
  const { classes } = await model.run({ image: tensor(data) });
  result.value = verdict(classes);
}

try {
  const model = await loadInWorker();
  for (let x = 0; x < WIDTH; x += 4) { // until somebody chooses an image
    context.fillStyle = x % 8 === 0 ? "#333" : "#ccc";
    context.fillRect(x, 0, 4, HEIGHT);
  }
  await show(model);
  document.querySelector("#file").addEventListener("change", async ({ target }) => {
    const [file] = target.files;
    if (file !== undefined) {
      context.drawImage(await createImageBitmap(file), 0, 0, WIDTH, HEIGHT);
      await show(model);
    }
  });
} catch (error) {
  result.value = error.message;
}
