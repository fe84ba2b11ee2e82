/**
 * Files in memory that a slower store keeps: a file system whose functions return at once where the store's do not, as
 * in pages. What changes is written to the store in the order in which it changed, at the latest a second later.
 */

/** Where files are kept. */
export interface FileStore {
  /** All files in a folder and in folders inside it, with their sizes. */
  list(folder: string): AsyncIterable<readonly [path: string, size: number]>;
  /** The size of a file; undefined without one. */
  size(path: string): Promise<number | undefined>;
  read(path: string, start: number, end: number): Promise<Uint8Array>;
  /** Writes a file as a whole or not at all, with the folders that it is in. */
  write(path: string, bytes: Uint8Array): Promise<void>;
  /** Removes a file, or a folder with everything in it, if it exists. */
  remove(path: string): Promise<void>;
}

/** What is known about a file or folder. */
interface Status {
  readonly size: number;
  isFile(): boolean;
  isDirectory(): boolean;
}

interface StoredFile {
  /** Its bytes, with room for more at the end; undefined when only the store has them. */
  bytes: Uint8Array | undefined;
  size: number;
  /** How many handles are open. */
  pins: number;
}

/** Larger files are forgotten once the store has them, and read from there piece by piece. */
const LARGEST_KEPT = 2 ** 24;

/** How long changes may wait before they are written, in milliseconds. */
const WAIT_MS = 1000;

function failure(code: string, what: string, path: string): Error {
  return Object.assign(new Error(`${code}: ${what}, '${path}'`), { code });
}

const clean = (path: string) =>
  path
    .split("/")
    .filter((name) => name !== "" && name !== ".")
    .join("/");

const parentOf = (path: string) => path.slice(0, Math.max(0, path.lastIndexOf("/")));

/** A file system in memory in front of a store; see above. */
export class MemoryFiles {
  private readonly files = new Map<string, StoredFile>();
  private readonly folders = new Set<string>([""]);
  /** Paths that differ from what the store has, in the order in which they changed. */
  private readonly changed = new Set<string>();
  private writing: Promise<void> = Promise.resolve();
  private timer: ReturnType<typeof setTimeout> | undefined;

  constructor(private readonly store: FileStore) {}

  /** Lists the files that the store has in a folder, and reads those that are not large. */
  async open(folder: string): Promise<void> {
    await this.flush();
    for await (const [path, size] of this.store.list(clean(folder))) {
      if (this.files.get(path)?.bytes !== undefined) continue;
      const bytes = size <= LARGEST_KEPT ? await this.store.read(path, 0, size) : undefined;
      this.addFolders(parentOf(path));
      this.files.set(path, { bytes, size, pins: 0 });
    }
  }

  status(path: string): Status | undefined {
    const file = this.files.get(clean(path));
    if (!file && !this.folders.has(clean(path))) return undefined;
    return { size: file?.size ?? 0, isFile: () => file !== undefined, isDirectory: () => file === undefined };
  }

  needStatus(path: string): Status {
    const found = this.status(path);
    if (found) return found;
    throw failure("ENOENT", "no such file or directory", path);
  }

  /** The status of a file that may be in the store alone. */
  async statusLater(path: string): Promise<Status> {
    const known = this.status(path);
    if (known) return known;
    const size = this.changed.has(clean(path)) ? undefined : await this.store.size(clean(path));
    if (size !== undefined) this.files.set(clean(path), { bytes: undefined, size, pins: 0 });
    return this.needStatus(path);
  }

  /** The names in a folder. */
  list(path: string): string[] {
    const folder = clean(path);
    if (this.files.has(folder)) throw failure("ENOTDIR", "not a directory", path);
    if (!this.folders.has(folder)) throw failure("ENOENT", "no such file or directory", path);
    const inside = [...this.files.keys(), ...this.folders].filter(
      (one) => one !== "" && parentOf(one) === folder,
    );
    return inside.map((one) => one.slice(one.lastIndexOf("/") + 1)).sort();
  }

  /** Makes a folder and those that it is in; returns the first that is new. */
  makeFolder(path: string): string | undefined {
    const names = clean(path).split("/");
    const all = names.map((_, i) => names.slice(0, i + 1).join("/"));
    const file = all.find((folder) => this.files.has(folder));
    if (file !== undefined) throw failure("ENOTDIR", "not a directory", path);
    const first = all.find((folder) => !this.folders.has(folder));
    this.addFolders(clean(path));
    return first;
  }

  /** The content of a file that is in memory. */
  read(path: string): Uint8Array {
    return this.inMemory(path).slice();
  }

  /** The content of a file, wherever it is. */
  async readLater(path: string): Promise<Uint8Array> {
    const { size } = await this.statusLater(path);
    const { bytes } = this.file(path);
    return bytes?.slice(0, size) ?? this.store.read(clean(path), 0, size);
  }

  async readInto(
    path: string,
    target: Uint8Array,
    offset: number,
    length: number,
    position: number,
  ): Promise<{ readonly bytesRead: number }> {
    const { bytes, size } = this.file(path);
    const end = Math.max(position, Math.min(size, position + length));
    const part = bytes?.subarray(position, end) ?? (await this.store.read(clean(path), position, end));
    target.set(part, offset);
    return { bytesRead: part.length };
  }

  /** Writes a file. @param isNew whether it must not exist */
  write(path: string, bytes: Uint8Array, isNew = false): void {
    const name = clean(path);
    if (isNew && this.files.has(name)) throw failure("EEXIST", "file already exists", path);
    if (this.folders.has(name)) throw failure("EISDIR", "illegal operation on a directory", path);
    if (!this.folders.has(parentOf(name))) throw failure("ENOENT", "no such file or directory", path);
    const pins = this.files.get(name)?.pins ?? 0;
    this.files.set(name, { bytes: bytes.slice(), size: bytes.length, pins });
    this.note(name);
  }

  /** Appends bytes to a file; returns their number. */
  append(path: string, bytes: Uint8Array): number {
    const file = this.file(path);
    const size = file.size + bytes.length;
    if (file.bytes === undefined || file.bytes.length < size) {
      const grown = new Uint8Array(2 * size);
      grown.set(this.inMemory(path));
      file.bytes = grown;
    }
    file.bytes.set(bytes, file.size);
    file.size = size;
    this.note(clean(path));
    return bytes.length;
  }

  truncate(path: string, size: number): void {
    const file = this.file(path);
    file.size = Math.min(file.size, size);
    this.note(clean(path));
  }

  /** Renames a file, replacing another, or a folder with everything in it. */
  rename(from: string, to: string): void {
    const [before, after] = [clean(from), clean(to)];
    if (!this.status(from)) throw failure("ENOENT", "no such file or directory", from);
    if (!this.folders.has(parentOf(after))) throw failure("ENOENT", "no such file or directory", to);
    if (before === after) return;
    if (this.folders.has(after)) {
      if (this.files.has(before)) throw failure("EISDIR", "illegal operation on a directory", to);
      if (this.list(to).length > 0) throw failure("ENOTEMPTY", "directory not empty", to);
    }
    const renamed = (path: string) => `${after}${path.slice(before.length)}`;
    for (const [path, file] of this.inside(before)) {
      if (file.bytes === undefined) throw failure("EFBIG", "it is too large to be renamed at once", path);
      this.files.delete(path);
      this.changed.delete(path);
      this.files.set(renamed(path), file);
      this.note(renamed(path));
    }
    for (const path of this.foldersInside(before)) {
      this.folders.delete(path);
      this.folders.add(renamed(path));
    }
    // Last, so that the store has the new names before it loses the old ones.
    this.note(before);
  }

  /** Removes a file or folder. @param force whether it may be missing */
  remove(path: string, force = false): void {
    const name = clean(path);
    if (!this.status(path)) {
      if (force) return;
      throw failure("ENOENT", "no such file or directory", path);
    }
    for (const [inside] of this.inside(name)) {
      this.files.delete(inside);
      this.changed.delete(inside);
    }
    for (const inside of this.foldersInside(name)) this.folders.delete(inside);
    this.note(name);
  }

  /** Says that a file is opened (1) or closed (−1): those that are open stay in memory. */
  pin(path: string, by: 1 | -1): void {
    const file = this.files.get(clean(path));
    if (file) file.pins += by;
  }

  /** Brings the content of a file, or of all files in a folder, into memory. */
  async load(path: string): Promise<void> {
    for (const [name, file] of this.inside(clean(path)))
      file.bytes ??= await this.store.read(name, 0, file.size);
  }

  /** Returns when the store has everything that has changed so far; throws if it did not take it. */
  flush(): Promise<void> {
    clearTimeout(this.timer);
    this.timer = undefined;
    const flushed = this.writing.then(() => this.writeChanges());
    // The next one tries again.
    this.writing = flushed.catch(() => {});
    return flushed;
  }

  private async writeChanges(): Promise<void> {
    for (const path of [...this.changed]) {
      const file = this.files.get(path);
      if (file?.bytes !== undefined) {
        const { bytes, size } = file;
        this.changed.delete(path);
        try {
          await this.store.write(path, bytes.subarray(0, size));
        } catch (error) {
          this.changed.add(path);
          throw error;
        }
        if (size > LARGEST_KEPT && file.pins === 0 && !this.changed.has(path)) file.bytes = undefined;
      } else {
        this.changed.delete(path);
        if (file === undefined && !this.folders.has(path)) await this.store.remove(path);
      }
    }
  }

  private inMemory(path: string): Uint8Array {
    const { bytes, size } = this.file(path);
    if (bytes === undefined) throw failure("EFBIG", `${size} bytes are too many to be read at once`, path);
    return bytes.subarray(0, size);
  }

  private file(path: string): StoredFile {
    const file = this.files.get(clean(path));
    if (file) return file;
    const code = this.folders.has(clean(path)) ? "EISDIR" : "ENOENT";
    throw failure(code, code === "EISDIR" ? "it is a directory" : "no such file or directory", path);
  }

  /** The file of a path, or all files in the folder. */
  private inside(path: string): (readonly [string, StoredFile])[] {
    return [...this.files].filter(([one]) => one === path || one.startsWith(`${path}/`));
  }

  private foldersInside(path: string): string[] {
    return [...this.folders].filter((one) => one === path || one.startsWith(`${path}/`));
  }

  private addFolders(path: string): void {
    for (let folder = path; folder !== ""; folder = parentOf(folder)) this.folders.add(folder);
  }

  private note(path: string): void {
    this.changed.delete(path);
    this.changed.add(path);
    this.timer ??= setTimeout(() => {
      // Whoever synchronises a folder is told; until then the changes are kept.
      this.flush().catch(() => {});
    }, WAIT_MS);
  }
}
