// Drives a bundle's demo page as a person does, and its npm package as a page does; posts what it saw as JSON.
// The bundle is served at ../bundle/, this file and an image at ../test/.
const [, name] = location.search.split("?");
const $ = (id) => frame.contentDocument.getElementById(id);
let frame;

const fetched = async (url, array) => new array(await (await fetch(url)).arrayBuffer());

async function until(found) {
  for (;;) {
    const value = found();
    if (value) return value;
    await new Promise((resolve) => setTimeout(resolve, 10));
  }
}

async function openDemo() {
  frame = document.createElement("iframe");
  frame.src = "../bundle/demo/index.html";
  document.body.append(frame);
  await until(() => frame.contentDocument?.readyState === "complete" && $("status"));
  return settled();
}

/** The status line once the page has done its work. */
const settled = () =>
  until(() => !/…$/.test($("status").textContent) && !$("recorded").disabled && $("status").textContent);

/** What a page shows: its status, numbers and tables. */
const shown = () => ({
  status: $("status").textContent,
  error: $("status").classList.contains("error"),
  numbers: Object.fromEntries(
    [...$("numbers").querySelectorAll("dt")].map((dt) => [dt.textContent, dt.nextSibling.textContent]),
  ),
  titles: [...$("results").querySelectorAll("h2")].map((title) => title.textContent),
  tables: [...$("results").querySelectorAll("table")].map((table) =>
    [...table.rows].map((row) => [...row.cells].map((cell) => cell.textContent)),
  ),
});

function holding(...files) {
  const transfer = new DataTransfer();
  for (const file of files) transfer.items.add(file);
  return transfer;
}

function choose(id, file) {
  $(id).files = holding(file).files;
  $(id).dispatchEvent(new Event("change", { bubbles: true }));
}

const cases = {
  async recorded() {
    const ready = await openDemo();
    const image = !$("image").hidden;
    $("recorded").click();
    await settled();
    return { ready, image, shown: shown() };
  },

  async image() {
    await openDemo();
    const picture = new File([await (await fetch("picture.png")).blob()], "picture.png", { type: "image/png" });
    choose("file", picture);
    await settled();
    const chosen = shown();
    $("scale").value = "bytes";
    $("scale").dispatchEvent(new Event("change", { bubbles: true }));
    await settled();
    const scaled = shown();
    choose("labels", new File([Array.from({ length: 100 }, (_, i) => `name ${i}\n`).join("")], "labels.txt"));
    await until(() => /^name/.test(shown().tables[0][1][0]));
    const named = shown();
    const drop = (file) =>
      $("drop").dispatchEvent(new DragEvent("drop", { dataTransfer: holding(file), bubbles: true, cancelable: true }));
    drop(new File(["no image"], "notes.txt"));
    await until(() => $("status").classList.contains("error"));
    const refused = shown();
    drop(picture);
    await until(() => !$("status").classList.contains("error"));
    await settled();
    return { chosen, scaled, named, refused, dropped: shown() };
  },

  async results() {
    const { show } = await import("../bundle/demo/results.js");
    const place = document.createElement("section");
    const table = (name, values, labels = [], shape = [1, values.length]) => {
      const output = { name, dtype: "float32", shape, length: values.length };
      show(place, [output], { [name]: Float32Array.from(values) }, labels);
      return [...place.querySelector("table").rows].map((row) => [...row.cells].map((cell) => cell.textContent));
    };
    return {
      embedding: table("last_hidden_state", [0.6, -0.8, 0]),
      logits: table("logits", [0, 2, -3]),
      shares: table("output", [0.25, 0.75]),
      apart: table("scores", [0.9, 0.8, 0.1]),
      labelled: table("output", [-1, 3], ["cat", "dog"]),
      image: table("image", [0, 1, 2, 3], [], [1, 2, 2]),
    };
  },

  async package() {
    const { load, inputs, outputs } = await import("../bundle/index.js");
    const { loadInWorker } = await import("../bundle/worker.js");
    const run = async (input) => {
      const { [outputs[0].name]: values } = model.run({ [inputs[0].name]: input });
      return Array.from(values);
    };
    const progress = [];
    const model = await load({ check: true, onProgress: (...now) => progress.push(now) });
    const recorded = await fetched("../bundle/test/input_0.bin", Float32Array);
    const values = await run(recorded);
    const worker = await loadInWorker({ params: "../bundle/params/image.params" });
    const far = Array.from(Object.values(await worker.run({ [inputs[0].name]: recorded }, { transfer: true }))[0]);
    const wrong = await worker.run({}).catch((error) => [error.code, error.message]);
    worker.dispose();
    const missing = await load({ params: "nothing" }).catch((error) => [error.code, error.message]);
    return { values, far, left: recorded.length, wrong, missing, progress: progress.at(-1), memory: model.memory };
  },
};

const end = (value) => fetch("../end", { method: "POST", body: JSON.stringify(value) });
window.addEventListener("unhandledrejection", (event) => end({ failed: String(event.reason) }));
end(await cases[name]().catch((error) => ({ failed: `${error.stack}` })));
