/**
 * A simulated disk that loses power: what was not synced is lost, torn or kept, as the seed says. Changes of a folder
 * reach the disk in order, and at the latest when the folder is synced; those of different folders and files are
 * independent of each other. Syncing a file says nothing about the folder that it is in.
 */
import { mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import type { FileSystem } from "../../src/train/files/disk/files.js";

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

/** What a disk is asked to do. */
export type DiskOperation = "change" | "write" | "sync" | "read";

/** The files of a machine, or of all machines that share a file system. */
export class Disk {
  private readonly root = new Folder();
  /** Called before each operation; throws where it fails. Returns whether it is only pretended. */
  before: (operation: DiskOperation) => boolean = () => false;

  makeFolder(path: string): void {
    let at = this.root;
    for (const name of namesOf(path)) {
      const found = at.entries.get(name);
      if (found instanceof Folder) {
        at = found;
        continue;
      }
      this.before("change");
      const made = new Folder();
      at.change((entries) => entries.set(name, made));
      at = made;
    }
  }

  create(path: string): { write(bytes: Uint8Array): void; sync(): void } {
    this.before("change");
    const [folder, name] = this.find(path);
    if (folder.entries.has(name)) throw systemError("EEXIST", `${path} exists`);
    const file = new File();
    folder.change((entries) => entries.set(name, file));
    return {
      write: (bytes) => {
        this.before("write");
        const all = new Uint8Array(file.bytes.length + bytes.length);
        all.set(file.bytes);
        all.set(bytes, file.bytes.length);
        file.bytes = all;
      },
      sync: () => {
        if (!this.before("sync")) file.synced = file.bytes;
      },
    };
  }

  syncFolder(path: string): void {
    const folder = this.folder(namesOf(path));
    if (!this.before("sync")) folder.sync();
  }

  rename(from: string, to: string): void {
    this.before("change");
    const [folder, name] = this.find(from);
    const [target, newName] = this.find(to);
    const moved = folder.entries.get(name);
    if (folder !== target || moved === undefined)
      throw systemError("ENOENT", `${from} cannot be renamed to ${to}`);
    folder.change((entries) => {
      entries.delete(name);
      entries.set(newName, moved);
    });
  }

  remove(path: string): void {
    this.before("change");
    const [folder, name] = this.find(path);
    folder.change((entries) => entries.delete(name));
  }

  /** The names in a folder; undefined if there is none. */
  list(path: string): string[] | undefined {
    const found = this.look(namesOf(path));
    return found instanceof Folder ? [...found.entries.keys()] : undefined;
  }

  /** The bytes of a file; undefined if there is none. */
  read(path: string): Uint8Array | undefined {
    this.before("read");
    const found = this.look(namesOf(path));
    return found instanceof File ? found.bytes : undefined;
  }

  /** The disk after a power cut. */
  survive(random: () => number): Disk {
    const disk = new Disk();
    const copy = (folder: Folder, into: Folder) => {
      for (const [name, entry] of folder.surviving(random)) {
        if (entry instanceof Folder) {
          const made = new Folder();
          copy(entry, made);
          into.change((entries) => entries.set(name, made));
        } else {
          const file = new File();
          file.bytes = survivingBytes(entry, random);
          file.synced = file.bytes;
          into.change((entries) => entries.set(name, file));
        }
      }
      into.sync();
    };
    copy(this.root, disk.root);
    return disk;
  }

  /** Writes all files to a real folder. */
  writeTo(into: string): void {
    const write = (folder: Folder, path: string) => {
      mkdirSync(path, { recursive: true });
      for (const [name, entry] of folder.entries) {
        if (entry instanceof Folder) write(entry, join(path, name));
        else writeFileSync(join(path, name), entry.bytes);
      }
    };
    write(this.root, into);
  }

  private find(path: string): readonly [Folder, string] {
    const names = namesOf(path);
    return [this.folder(names.slice(0, -1)), names.at(-1) ?? ""];
  }

  private folder(names: readonly string[]): Folder {
    const found = this.look(names);
    if (found instanceof Folder) return found;
    throw systemError("ENOENT", `no folder ${names.join("/")}`);
  }

  private look(names: readonly string[]): File | Folder | undefined {
    let at: File | Folder | undefined = this.root;
    for (const name of names) at = at instanceof Folder ? at.entries.get(name) : undefined;
    return at;
  }
}

/** A disk that loses power, as code sees it. */
export class SimulatedDisk implements FileSystem {
  readonly disk = new Disk();
  numOperations = 0;

  /** @param limit the operation before which the power goes off */
  constructor(limit: number) {
    this.disk.before = (operation) => {
      if (operation === "read") return false;
      if (this.numOperations >= limit) throw new PowerCut();
      this.numOperations++;
      return false;
    };
  }

  makeFolder = async (path: string): Promise<void> => this.disk.makeFolder(path);
  create = async (path: string) => {
    const file = this.disk.create(path);
    return {
      write: async (bytes: Uint8Array) => file.write(bytes),
      sync: async () => file.sync(),
      close: async () => {},
    };
  };
  syncFolder = async (path: string): Promise<void> => this.disk.syncFolder(path);
  rename = async (from: string, to: string): Promise<void> => this.disk.rename(from, to);
  remove = async (path: string): Promise<void> => this.disk.remove(path);
  list = async (path: string): Promise<readonly string[]> => this.disk.list(path) ?? [];
  size = async (path: string): Promise<number | undefined> => this.disk.read(path)?.length;
}

/** An error as the system reports it. */
export function systemError(code: string, message: string): Error {
  return Object.assign(new Error(message), { code });
}

function namesOf(path: string): string[] {
  return path.split("/").filter((name) => name !== "" && name !== ".");
}

/** The bytes of a file after a power cut: all, those that were synced, some of the others, or zeros instead. */
function survivingBytes({ bytes, synced }: File, random: () => number): Uint8Array<ArrayBuffer> {
  if (bytes === synced) return bytes;
  const kept = synced.length + Math.floor(random() * (bytes.length - synced.length + 1));
  const which = Math.floor(random() * 4);
  if (which === 0) return bytes;
  if (which === 1) return synced;
  return which === 2 ? bytes.subarray(0, kept) : bytes.map((byte, i) => (i < kept ? byte : 0));
}
