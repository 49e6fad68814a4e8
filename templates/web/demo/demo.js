// The demo: the recorded input or an image, the top results, the latency. SPDX-License-Identifier: Apache-2.0
import { ARRAYS } from "../web/dtypes.js";
import { inputs, load, outputs } from "../index.js";
import { draw, isImage, pixels } from "./image.js";
import { show } from "./results.js";

const $ = (id) => document.getElementById(id);

let model;
let labels = [];
let last;

function say(text, failed = false) {
  $("status").textContent = text;
  $("status").classList.toggle("error", failed);
}

function number(name, value) {
  const id = `number-${name.toLowerCase().replaceAll(" ", "-")}`;
  let cell = $(id);
  if (!cell) {
    const title = document.createElement("dt");
    title.textContent = name;
    cell = document.createElement("dd");
    cell.id = id;
    $("numbers").append(title, cell);
  }
  cell.textContent = value;
}

const mib = (bytes) => `${(bytes / 2 ** 20).toFixed(1)} MiB`;
const pause = () => new Promise((resolve) => setTimeout(resolve));

/** Runs up to `count` times or `ms` long, and lets the page breathe in between; the time of each run. */
async function runs(given, count, ms) {
  const times = [];
  for (const end = performance.now() + ms; times.length < count && performance.now() < end;) {
    await pause();
    const start = performance.now();
    model.run(given);
    times.push(performance.now() - start);
  }
  return times;
}

/** Runs for the result and for the latency. */
async function measure(given) {
  const result = model.run(given);
  await runs(given, 20, 1000); // the engine begins with code of its quick compiler
  const times = await runs(given, 30, 2000);
  times.sort((a, b) => a - b);
  number("Latency", `${times[times.length >> 1].toFixed(2)} ms (median of ${times.length} runs)`);
  number("Fastest run", `${times[0].toFixed(2)} ms`);
  number("Memory", `${mib(model.memory.total)}, of that ${mib(model.memory.params)} params`);
  return result;
}

/** One job at a time; what goes wrong is shown. */
async function job(title, work) {
  const controls = [...document.querySelectorAll("button, input, select")];
  for (const control of controls) control.disabled = true;
  say(`${title}…`);
  try {
    say(await work());
  } catch (error) {
    say(error.message, true);
  }
  for (const control of controls) control.disabled = !model;
}

/** The contents of test/<name>, as an array of this dtype: as the model gives and takes them. */
async function recorded(role, i, array) {
  const response = await fetch(new URL(`../test/${role}_${i}.bin`, import.meta.url));
  if (!response.ok) throw new Error(`test/${role}_${i}.bin: ${response.status}`);
  return new array(await response.arrayBuffer());
}

/** Shows how far the outputs are from the recorded ones. Half precision, which comes as bits, is left out. */
async function compare() {
  let worst = null;
  for (const [i, { name, dtype }] of outputs.entries()) {
    if (dtype.endsWith("float16")) continue;
    const want = await recorded("output", i, ARRAYS[dtype]);
    const differences = Array.from(want, (value, k) => Math.abs(Number(value) - Number(last[name][k])));
    worst = differences.reduce((a, b) => Math.max(a, b), worst ?? 0);
  }
  if (worst !== null) number("Largest difference from the recorded outputs", worst.toPrecision(3));
}

async function runRecorded() {
  const arrays = await Promise.all(inputs.map(({ dtype }, i) => recorded("input", i, ARRAYS[dtype])));
  last = await measure(Object.fromEntries(inputs.map(({ name }, i) => [name, arrays[i]])));
  await compare();
  show($("results"), outputs, last, labels);
  return "Ran the recorded input.";
}

async function runImage(file) {
  const [input] = inputs;
  let bitmap;
  try {
    bitmap = await createImageBitmap(file);
  } catch {
    throw new Error(`${file.name} is no image that this browser can read.`);
  }
  draw($("canvas"), bitmap, input.shape[3], input.shape[2]);
  bitmap.close();
  $("canvas").hidden = false;
  last = await measure({ [input.name]: pixels($("canvas"), $("scale").value) });
  show($("results"), outputs, last, labels);
  return `Ran ${file.name}.`;
}

function listen() {
  let file;
  const image = (chosen) => {
    file = chosen ?? file;
    if (file) job(`Running ${file.name}`, () => runImage(file));
  };
  $("recorded").onclick = () => job("Running the recorded input", runRecorded);
  $("file").onchange = () => image($("file").files[0]);
  $("scale").onchange = () => image();
  $("labels").onchange = async () => {
    const text = (await $("labels").files[0]?.text()) ?? "";
    labels = text.trimEnd().split(/\r?\n/);
    if (last) show($("results"), outputs, last, labels);
  };
  $("drop").ondragover = (event) => {
    event.preventDefault();
    $("drop").classList.add("over");
  };
  $("drop").ondragleave = () => $("drop").classList.remove("over");
  $("drop").ondrop = (event) => {
    event.preventDefault();
    $("drop").classList.remove("over");
    if (model) image(event.dataTransfer.files[0]);
  };
}

listen();
await job("Loading", async () => {
  const start = performance.now();
  model = await load({ onProgress: (loaded, total) => ($("progress").value = loaded / total) });
  $("progress").hidden = true;
  $("image").hidden = !isImage(inputs);
  number("Loaded in", `${(performance.now() - start).toFixed(0)} ms`);
  return "Ready.";
});
