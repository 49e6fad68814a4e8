// Uses an npm package that has a module with threads in a page and in a worker; `seen` is a promise of JSON.
window.seen = (async () => {
  const { load } = await import("./bundle/index.js");
  const { loadInWorker } = await import("./bundle/worker.js");
  const x = new Float32Array(await (await fetch("./bundle/test/input_0.bin")).arrayBuffer());
  const near = await load();
  const values = Array.from(near.run({ x }).y);
  const far = await loadInWorker();
  const { y } = await far.run({ x });
  const asked = await load({ threads: 3 }).then(
    (model) => model.threads,
    (error) => `${error.code} ${error.message}`,
  );
  const fetched = performance.getEntriesByType("resource").map(({ name }) => name.split("/").pop());
  const threads = [near.threads, far.threads];
  near.dispose();
  far.dispose();
  return JSON.stringify({ isolated: crossOriginIsolated, threads, values, far: Array.from(y), asked, fetched });
})().catch((error) => JSON.stringify({ failed: `${error.stack ?? error}` }));
