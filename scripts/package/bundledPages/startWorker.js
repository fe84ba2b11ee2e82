const worker = new Worker(new URL("./ownWorker.js", import.meta.url), { type: "module" });

globalThis.results = new Promise((resolve, reject) => {
  worker.onmessage = ({ data }) => (data.error ? reject(new Error(data.error)) : resolve(data));
  worker.onerror = ({ message }) => reject(new Error(message));
});
