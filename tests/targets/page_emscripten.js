// Uses an npm package of Emscripten in a page and in its worker; posts what it saw as JSON. The bundle is served at
// ../bundle/.
const post = (seen) => fetch("../end", { method: "POST", body: JSON.stringify(seen) });
try {
  const { load } = await import("../bundle/index.js");
  const { loadInWorker } = await import("../bundle/worker.js");
  const given = new Float32Array(await (await fetch("../bundle/test/input_0.bin")).arrayBuffer());
  const near = await load();
  const values = Array.from(near.run({ mfcc: given }).words);
  const threads = near.threads;
  near.dispose();
  const far = await loadInWorker(threads > 1 ? { threads: 2 } : {});
  const { words } = await far.run({ mfcc: given });
  far.dispose();
  await post({ isolated: crossOriginIsolated, values, far: Array.from(words), threads });
} catch (error) {
  await post({ failed: `${error.stack ?? error}` });
}
