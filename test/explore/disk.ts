/**
 * A simulated disk that loses power: what was not synced is lost, torn or kept, as the seed says. Changes of a folder
 * reach the disk in order, and at the latest when the folder is synced; those of different folders and files are
 * independent of each other. Syncing a file says nothing about the folder that it is in.
 */
import { mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import type { FileSystem } from "../../src/train/files/files.js";

/** Thrown by every operation once the power is off. */
export class PowerCut extends Error {
  constructor() {
    super("the power is off");
  }
}

class File {
  bytes = new Uint8Array();
  /** What is on the disk for certain. */
  synced = new Uint8Array();
}

type Change = (entries: Map<string, File | Folder>) => void;

class Folder {
  readonly entries = new Map<string, File | Folder>();
  private readonly synced = new Map<string, File | Folder>();
  private readonly pending: Change[] = [];

  change(change: Change): void {
    change(this.entries);
    this.pending.push(change);
  }

  sync(): void {
    for (const change of this.pending.splice(0)) change(this.synced);
  }

  /** The entries after a power cut. */
  surviving(random: () => number): ReadonlyMap<string, File | Folder> {
    const entries = new Map(this.synced);
    for (const change of this.pending.slice(0, Math.floor(random() * (this.pending.length + 1))))
      change(entries);
    return entries;
  }
}

export class SimulatedDisk implements FileSystem {
  private readonly root = new Folder();
  numOperations = 0;

  /** @param limit the operation before which the power goes off */
  constructor(private readonly limit: number) {}

  async makeFolder(path: string): Promise<void> {
    let at = this.root;
    for (const name of namesOf(path)) {
      const found = at.entries.get(name);
      if (found instanceof Folder) {
        at = found;
        continue;
      }
      this.operate();
      const made = new Folder();
      at.change((entries) => entries.set(name, made));
      at = made;
    }
  }

  async create(path: string) {
    this.operate();
    const [folder, name] = this.find(path);
    if (folder.entries.has(name)) throw Object.assign(new Error(`${path} exists`), { code: "EEXIST" });
    const file = new File();
    folder.change((entries) => entries.set(name, file));
    return {
      write: async (bytes: Uint8Array) => {
        this.operate();
        file.bytes = Uint8Array.from([...file.bytes, ...bytes]);
      },
      sync: async () => {
        this.operate();
        file.synced = file.bytes;
      },
      close: async () => {},
    };
  }

  async syncFolder(path: string): Promise<void> {
    this.operate();
    this.folder(namesOf(path)).sync();
  }

  async rename(from: string, to: string): Promise<void> {
    this.operate();
    const [folder, name] = this.find(from);
    const [target, newName] = this.find(to);
    const moved = folder.entries.get(name);
    if (folder !== target || moved === undefined) throw new Error(`${from} cannot be renamed to ${to}`);
    folder.change((entries) => {
      entries.delete(name);
      entries.set(newName, moved);
    });
  }

  async remove(path: string): Promise<void> {
    this.operate();
    const [folder, name] = this.find(path);
    folder.change((entries) => entries.delete(name));
  }

  async list(path: string): Promise<readonly string[]> {
    const found = this.look(namesOf(path));
    return found instanceof Folder ? [...found.entries.keys()] : [];
  }

  async size(path: string): Promise<number | undefined> {
    const found = this.look(namesOf(path));
    return found instanceof File ? found.bytes.length : undefined;
  }

  /** Writes what survives the power cut to a real folder. */
  survive(into: string, random: () => number): void {
    const write = (folder: Folder, path: string) => {
      mkdirSync(path, { recursive: true });
      for (const [name, entry] of folder.surviving(random)) {
        if (entry instanceof Folder) write(entry, join(path, name));
        else writeFileSync(join(path, name), survivingBytes(entry, random));
      }
    };
    write(this.root, into);
  }

  private operate(): void {
    if (this.numOperations >= this.limit) throw new PowerCut();
    this.numOperations++;
  }

  private find(path: string): readonly [Folder, string] {
    const names = namesOf(path);
    return [this.folder(names.slice(0, -1)), names.at(-1) ?? ""];
  }

  private folder(names: readonly string[]): Folder {
    const found = this.look(names);
    if (found instanceof Folder) return found;
    throw Object.assign(new Error(`no folder ${names.join("/")}`), { code: "ENOENT" });
  }

  private look(names: readonly string[]): File | Folder | undefined {
    let at: File | Folder | undefined = this.root;
    for (const name of names) at = at instanceof Folder ? at.entries.get(name) : undefined;
    return at;
  }
}

function namesOf(path: string): string[] {
  return path.split("/").filter((name) => name !== "" && name !== ".");
}

/** The bytes of a file after a power cut: all, those that were synced, some of the others, or zeros instead. */
function survivingBytes({ bytes, synced }: File, random: () => number): Uint8Array {
  if (bytes === synced) return bytes;
  const kept = synced.length + Math.floor(random() * (bytes.length - synced.length + 1));
  const which = Math.floor(random() * 4);
  if (which === 0) return bytes;
  if (which === 1) return synced;
  return which === 2 ? bytes.subarray(0, kept) : bytes.map((byte, i) => (i < kept ? byte : 0));
}
