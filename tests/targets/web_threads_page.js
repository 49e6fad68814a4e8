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
  // Of another site, which may not start workers here.
  const { load: other } = await import(`http://localhost:${location.port}/isolated/bundle/index.js`);
  const warned = [];
  console.warn = (text) => warned.push(text);
  const foreign = await other();
  const elsewhere = [foreign.threads, Array.from(foreign.run({ x }).y), ...warned];
  const fetched = performance.getEntriesByType("resource").map(({ name }) => name.split("/").pop());
  const threads = [near.threads, far.threads];
  near.dispose();
  far.dispose();
  const seen = { threads, values, far: Array.from(y), asked, elsewhere, fetched };
  return JSON.stringify({ isolated: crossOriginIsolated, ...seen });
})().catch((error) => JSON.stringify({ failed: `${error.stack ?? error}` }));
