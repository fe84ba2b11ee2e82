import { entriesOf, originStore, writeIn } from "./originStore.js";
import type * as node from "./storage.js";

export const offerDownload: typeof node.offerDownload = (bytes, name) => {
  const address = URL.createObjectURL(new Blob([bytes.slice()]));
  const link = Object.assign(document.createElement("a"), { href: address, download: name });
  link.click();
  // The download has begun by then.
  setTimeout(() => URL.revokeObjectURL(address), 60_000);
};

export const openOriginFolder: typeof node.openOriginFolder = async (path) => {
  let folder = await navigator.storage.getDirectory();
  for (const name of path) folder = await folder.getDirectoryHandle(name, { create: true });
  const isMissing = (error: unknown) => error instanceof DOMException && error.name === "NotFoundError";
  return {
    async names() {
      const found: string[] = [];
      for await (const { kind, name } of entriesOf(folder)) if (kind === "file") found.push(name);
      return found.sort();
    },
    async read(name) {
      try {
        const file = await (await folder.getFileHandle(name)).getFile();
        return new Uint8Array(await file.arrayBuffer());
      } catch (error) {
        if (isMissing(error)) return undefined;
        throw error;
      }
    },
    write: (name, bytes) => writeIn(folder, name, bytes),
    async remove(name) {
      await folder.removeEntry(name).catch((error: unknown) => {
        if (!isMissing(error)) throw error;
      });
    },
  };
};

export const filesOfOrigin: typeof node.filesOfOrigin = async function* (path) {
  for await (const [found, size] of originStore.list(path))
    yield [found, await originStore.read(found, 0, size)];
};
