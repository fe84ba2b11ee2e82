import { entriesOf, fileIn, folderAt, originStore, removeIn, writeIn } from "./originStore.js";
import type * as node from "./pageStorage.js";

export const offerDownload: typeof node.offerDownload = (bytes, name) => {
  const address = URL.createObjectURL(new Blob([bytes.slice()]));
  const link = Object.assign(document.createElement("a"), { href: address, download: name });
  link.click();
  // The download has begun by then.
  setTimeout(() => URL.revokeObjectURL(address), 60_000);
};

export const openOriginFolder: typeof node.openOriginFolder = async (path) => {
  const folder = await folderAt(path, true);
  return {
    async names() {
      const found: string[] = [];
      for await (const { kind, name } of entriesOf(folder)) if (kind === "file") found.push(name);
      return found.sort();
    },
    async read(name) {
      const file = await fileIn(folder, name);
      return file && new Uint8Array(await file.arrayBuffer());
    },
    write: (name, bytes) => writeIn(folder, name, bytes),
    remove: (name) => removeIn(folder, name),
  };
};

export const filesOfOrigin: typeof node.filesOfOrigin = async function* (path) {
  for await (const [found, size] of originStore.list(path))
    yield [found, await originStore.read(found, 0, size)];
};
