// What Emscripten 3 wants from node, which it takes for one without ES modules; newer versions have it themselves.
const inNode = Boolean(globalThis.process?.versions?.node);
const fromNode = (name) => import(/* webpackIgnore: true */ /* @vite-ignore */ `node:${name}`);
const require = inNode ? (await fromNode("module")).createRequire(import.meta.url) : undefined;
const __dirname = inNode ? (await fromNode("url")).fileURLToPath(new URL(".", import.meta.url)) : undefined;
