/**
 * Registers the service worker: it keeps the files of the playground for use without a network, and adds the headers
 * that let pages share memory between threads, which hosts of plain files do not send.
 */
export function keepForOffline(): void {
  if (!("serviceWorker" in navigator) || !isSecureContext) return;
  void navigator.serviceWorker.register("service.js").then(
    () => navigator.serviceWorker.ready.then(reloadIsolated),
    () => {},
  );
}

/** Loads the page again, once, when only the service worker can isolate it. */
function reloadIsolated(): void {
  const mark = "shardwise-isolated";
  if (crossOriginIsolated || !navigator.serviceWorker.controller || sessionStorage.getItem(mark)) return;
  sessionStorage.setItem(mark, "1");
  location.reload();
}
