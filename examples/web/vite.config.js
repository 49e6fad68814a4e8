export default {
  worker: { format: "es" },
  optimizeDeps: { exclude: ["stripes-wasm"] },
};
