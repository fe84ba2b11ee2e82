// The same program in a worker of the page.
import "./page.js";

globalThis.results.then(
  (found) => globalThis.postMessage(found),
  (error) => globalThis.postMessage({ error: String(error) }),
);
