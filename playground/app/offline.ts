/**
 * Registers the service worker: it keeps the files of the playground for use without a network, and adds the headers
 * that let pages share memory between threads, which hosts of plain files do not send.
 */
export function keepForOffline(): void {
  if (!("serviceWorker" in navigator) || !isSecureContext) return;
  navigator.serviceWorker.addEventListener("message", () => {
    document.documentElement.dataset.offline = "ready";
  });
  void navigator.serviceWorker.register("service.js").then(
    async () => {
      const { active } = await navigator.serviceWorker.ready;
      reloadIsolated();
      await shown();
      active?.postMessage("keep");
    },
    () => {},
  );
}

/** Resolves when what the page shows is loaded: the rest must not delay it. */
const shown = (): Promise<void> =>
  new Promise((resolve) => {
    const end = () => setTimeout(resolve, 1000);
    if (document.readyState === "complete") end();
    else addEventListener("load", end, { once: true });
  });

/** Loads the page again, once, when only the service worker can isolate it. */
function reloadIsolated(): void {
  const mark = "shardwise-isolated";
  if (crossOriginIsolated || !navigator.serviceWorker.controller || sessionStorage.getItem(mark)) return;
  sessionStorage.setItem(mark, "1");
  location.reload();
}
