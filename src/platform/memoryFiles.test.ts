import { expect, test } from "vitest";
import { type FileStore, MemoryFiles } from "./memoryFiles.js";

const bytes = (text: string) => new TextEncoder().encode(text);
const text = (content: Uint8Array) => new TextDecoder().decode(content);

/** A store in memory, with what was asked of it. */
function newStore(): FileStore & {
  readonly kept: Map<string, Uint8Array>;
  readonly calls: string[];
  full: boolean;
} {
  const kept = new Map<string, Uint8Array>();
  const calls: string[] = [];
  return {
    kept,
    calls,
    full: false,
    async *list(folder) {
      for (const [path, { length }] of kept) if (path.startsWith(`${folder}/`)) yield [path, length] as const;
    },
    size: async (path) => kept.get(path)?.length,
    read: async (path, start, end) => (kept.get(path) ?? new Uint8Array()).slice(start, end),
    async write(path, content) {
      if (this.full) throw new Error("QuotaExceededError");
      calls.push(`write ${path}`);
      kept.set(path, content.slice());
    },
    async remove(path) {
      calls.push(`remove ${path}`);
      for (const one of kept.keys()) if (one === path || one.startsWith(`${path}/`)) kept.delete(one);
    },
  };
}

test("files are written to the store under their last names, and are there for the next page", async () => {
  const store = newStore();
  const files = new MemoryFiles(store);
  files.makeFolder("run/.partial");
  files.write("run/.partial/a", bytes("one"));
  files.append("run/.partial/a", bytes(" two"));
  files.rename("run/.partial", "run/step-1");
  files.write("run/metrics", bytes("1\n2\n"));
  files.truncate("run/metrics", 2);
  await files.flush();
  expect(store.calls).toEqual(["write run/step-1/a", "remove run/.partial", "write run/metrics"]);
  const next = new MemoryFiles(store);
  expect(next.status("run/metrics")).toBeUndefined();
  await next.open("run");
  expect(next.list("run")).toEqual(["metrics", "step-1"]);
  expect([text(next.read("run/step-1/a")), text(next.read("run/metrics"))]).toEqual(["one two", "1\n"]);
  next.remove("run/step-1");
  await next.flush();
  expect([...store.kept.keys()]).toEqual(["run/metrics"]);
});

test("large files stay in the store, which is asked for the part that is read", async () => {
  const store = newStore();
  const files = new MemoryFiles(store);
  files.makeFolder("run");
  const large = new Uint8Array(2 ** 24 + 1).fill(7);
  files.write("run/large", large);
  await files.flush();
  expect(() => files.read("run/large")).toThrow(/EFBIG: 16777217 bytes are too many/);
  const part = new Uint8Array(4);
  expect(await files.readInto("run/large", part, 1, 8, 2 ** 24 - 1)).toEqual({ bytesRead: 2 });
  expect([...part]).toEqual([0, 7, 7, 0]);
  await files.load("run/large");
  files.rename("run/large", "run/other");
  await files.flush();
  expect([...store.kept.keys()]).toEqual(["run/other"]);
});

test("what a full store refuses is kept and written later", async () => {
  const store = newStore();
  const files = new MemoryFiles(store);
  files.makeFolder("run");
  files.write("run/a", bytes("a"));
  store.full = true;
  await expect(files.flush()).rejects.toThrow("QuotaExceededError");
  store.full = false;
  await files.flush();
  expect(text(store.kept.get("run/a") ?? bytes(""))).toBe("a");
});

test("mistakes have the codes that they have on a disk", async () => {
  const files = new MemoryFiles(newStore());
  files.makeFolder("run/inside");
  files.write("run/a", bytes("a"));
  const codeOf = (action: () => unknown) => {
    try {
      return action();
    } catch (error) {
      return (error as { readonly code?: string }).code;
    }
  };
  expect(codeOf(() => files.read("run/b"))).toBe("ENOENT");
  expect(codeOf(() => files.write("run/a", bytes(""), true))).toBe("EEXIST");
  expect(codeOf(() => files.write("other/a", bytes("")))).toBe("ENOENT");
  expect(codeOf(() => files.makeFolder("run/a/b"))).toBe("ENOTDIR");
  expect(codeOf(() => files.list("run/a"))).toBe("ENOTDIR");
  expect(codeOf(() => files.read("run/inside"))).toBe("EISDIR");
  expect(codeOf(() => files.remove("run/b"))).toBe("ENOENT");
  expect(codeOf(() => files.remove("run/b", true))).toBeUndefined();
  await expect(files.statusLater("run/b")).rejects.toMatchObject({ code: "ENOENT" });
});
