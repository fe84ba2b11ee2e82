import { getOrInsert } from "../../../ir/collections.js";
import { reasonOf } from "../../../ir/errors.js";
import { EngineLoadError } from "../../errors.js";
import type { Launch } from "../../launch.js";
import { bindCode } from "../../system/codeMemory.js";
import { type Koffi, loadKoffi } from "../../system/koffi.js";
import {
  type Constants,
  type Library,
  type MpiFamily,
  mpich,
  openMpi,
  paths,
  type SummedType,
} from "./mpiFamilies.js";

/** A native function; addresses, handles and results are numbers. */
type Native = (...args: number[]) => number;

/** Where machine code is that a process has generated. */
export interface CodePlaces {
  /** See {@link writeLookLoop}. */
  readonly look: number;
  /** See {@link writeCallList}. */
  readonly callAll: number;
}

/** What begins messages and looks for them in one call each. */
export interface BatchCode {
  /** Makes calls that are described from an address on; the result of the last one is stored behind `flag`. */
  readonly callAll: (calls: number, count: number, flag: number) => void;
  /** Looks some times whether requests are complete; what the last look gave is stored two words behind `flag`. */
  readonly look: (count: number, requests: number, flag: number, statuses: number, times: number) => void;
  /** The addresses of the functions that begin messages. */
  readonly isend: number;
  readonly irecv: number;
}

const MPI_THREAD_MULTIPLE = 3;
const MAX_TEXT = 8192;
/** What every MPI allows. */
const LEAST_TAG_BOUND = 32767;

/** Which library was loaded, and how; threads bind the same one. */
export interface MpiChoice {
  readonly path: string;
  readonly family: MpiFamily["name"];
}

/**
 * An MPI library of the system. Buffers are native addresses, because tensors lie in memory that does not move;
 * whatever fails is an error that quotes the library.
 */
export class Mpi {
  readonly world: number;
  readonly handleBytes: number;
  readonly statusBytes: number;
  private readonly family: MpiFamily;
  private readonly constants: Constants;
  private readonly functions = new Map<string, Native>();
  /** Results of calls; a shared buffer, because others may be moved by the garbage collector. */
  private readonly results = new Int32Array(new SharedArrayBuffer(MAX_TEXT + 64));
  private readonly resultsAddress: number;
  private readonly isendNative: Native;
  private readonly irecvNative: Native;
  private readonly testallNative: Native;
  private readonly iallreduceNative: Native;

  private constructor(
    private readonly koffi: Koffi,
    private readonly library: Library,
    readonly choice: MpiChoice,
  ) {
    this.family = choice.family === "Open MPI" ? openMpi : mpich;
    this.constants = this.family.constants(library, koffi);
    this.world = this.constants.world;
    this.handleBytes = this.family.handleBytes;
    this.statusBytes = this.family.statusBytes;
    this.resultsAddress = this.addressOf(this.results);
    const { handle } = this.family;
    const message = ["uintptr_t", "int", handle, "int", "int", handle, "uintptr_t"];
    this.isendNative = this.bind("MPI_Isend", message);
    this.irecvNative = this.bind("MPI_Irecv", message);
    this.testallNative = this.bind("MPI_Testall", ["int", "uintptr_t", "uintptr_t", "uintptr_t"]);
    const sum = ["intptr_t", "uintptr_t", "int", handle, handle, handle, "uintptr_t"];
    this.iallreduceNative = this.bind("MPI_Iallreduce", sum);
  }

  /** Finds the library that belongs to a launcher; `SHARDWISE_MPI` can name one. */
  static find(
    launch: Launch | undefined,
    named: string | undefined = process.env.SHARDWISE_MPI || undefined,
  ): Mpi {
    const order: readonly MpiFamily["name"][] =
      launch?.launcher === "Hydra" ? ["MPICH", "Open MPI"] : ["Open MPI", "MPICH"];
    const candidates = named === undefined ? order.flatMap((name) => paths[name]) : [named];
    const reasons: string[] = [];
    for (const path of candidates) {
      const loaded = Mpi.load(path);
      if (loaded instanceof Mpi) return loaded;
      reasons.push(loaded);
    }
    const what =
      named === undefined
        ? "no MPI library is found: install openmpi-bin or mpich (Debian), openmpi or mpich (Fedora, conda, Homebrew), load your cluster's MPI module, or set SHARDWISE_MPI to the path of libmpi.so"
        : `SHARDWISE_MPI=${named} is not an MPI library`;
    throw new EngineLoadError(`[mpi] ${what}; ${reasons[0]}`);
  }

  /** Binds a library that was found before, or says why it cannot be. */
  static load(path: string): Mpi | string {
    const koffi = loadKoffi();
    if (koffi === undefined) return "the package koffi, which calls native functions, does not load here";
    let library: Library;
    try {
      library = koffi.load(path, { global: true });
    } catch (error) {
      return reasonOf(error);
    }
    const has = (symbol: string) => {
      try {
        library.symbol(symbol);
        return true;
      } catch {
        return false;
      }
    };
    if (!has("MPI_Init_thread")) return `${path} has no MPI_Init_thread`;
    return new Mpi(koffi, library, { path, family: has("ompi_mpi_comm_world") ? "Open MPI" : "MPICH" });
  }

  /** The address of elements that do not move: those of shared buffers. */
  addressOf(view: Int32Array | Uint8Array): number {
    return Number(this.koffi.address(view));
  }

  /** Begins MPI in this process unless it has begun; any thread may call it afterwards. */
  initialize(): void {
    if (this.flag("MPI_Initialized")) return;
    const types = ["uintptr_t", "uintptr_t", "int", "uintptr_t"];
    this.call("MPI_Init_thread", types, [0, 0, MPI_THREAD_MULTIPLE, this.resultsAddress]);
    if ((this.results[0] ?? 0) < MPI_THREAD_MULTIPLE) {
      throw new EngineLoadError(
        `[mpi] ${this.choice.path} lets only one thread call it (level ${this.results[0]} of ${MPI_THREAD_MULTIPLE}): use one that was built with MPI_THREAD_MULTIPLE`,
      );
    }
    this.setErrors(this.world);
  }

  /** Whether MPI can be called: it has begun and not ended. */
  get isRunning(): boolean {
    return this.flag("MPI_Initialized") && !this.flag("MPI_Finalized");
  }

  /** Ends MPI in this process; all processes have to. */
  finalize(): void {
    this.bind("MPI_Finalize", [])();
  }

  rank(comm: number): number {
    return this.number("MPI_Comm_rank", comm);
  }

  size(comm: number): number {
    return this.number("MPI_Comm_size", comm);
  }

  /** Name and version of the library, on one line. */
  get version(): string {
    const length = this.results.subarray(0, 1);
    const text = new Uint8Array(this.results.buffer, 64);
    const args = [this.addressOf(text), this.addressOf(length)];
    this.call("MPI_Get_library_version", ["uintptr_t", "uintptr_t"], args);
    const raw = Buffer.from(text.slice(0, length[0])).toString();
    return raw.replaceAll("\0", "").split(/[\n,]/)[0]?.replaceAll(/\s+/g, " ").trim() ?? "";
  }

  /** The largest tag that a message can have. */
  get largestTag(): number {
    const { handle, tagBound } = this.family;
    const types = [handle, "int", "uintptr_t", "uintptr_t"];
    const args = [this.world, tagBound, this.resultsAddress, this.resultsAddress + 8];
    this.call("MPI_Comm_get_attr", types, args);
    if (this.results[2] === 0) return LEAST_TAG_BOUND;
    const [low = 0, high = 0] = new Uint32Array(this.results.buffer, 0, 2);
    return Number(this.koffi.decode(BigInt(low) + (BigInt(high) << 32n), "int"));
  }

  /** A communicator of its own with the same processes; all of them call this together. */
  duplicate(comm: number): number {
    this.call("MPI_Comm_dup", [this.family.handle, "uintptr_t"], [comm, this.resultsAddress]);
    const copy = this.readHandle();
    this.setErrors(copy);
    return copy;
  }

  /**
   * A communicator of some processes of another one, in this order; only they call this, all of them together.
   *
   * @param tag tells what is made at the same time apart
   */
  subset(comm: number, ranks: readonly number[], tag: number): number {
    const { handle } = this.family;
    const make = (name: string, types: readonly string[], args: readonly number[]) => {
      this.call(name, types, args);
      return this.readHandle();
    };
    const list = new Int32Array(new SharedArrayBuffer(4 * ranks.length));
    list.set(ranks);
    const whole = make("MPI_Comm_group", [handle, "uintptr_t"], [comm, this.resultsAddress]);
    const included = [whole, ranks.length, this.addressOf(list), this.resultsAddress];
    const part = make("MPI_Group_incl", [handle, "int", "uintptr_t", "uintptr_t"], included);
    const asked = [comm, part, tag, this.resultsAddress];
    const made = make("MPI_Comm_create_group", [handle, handle, "int", "uintptr_t"], asked);
    for (const group of [part, whole]) this.free("MPI_Group_free", group);
    this.setErrors(made);
    return made;
  }

  /** Gives up a communicator on which nothing is under way; all its processes do. */
  freeCommunicator(comm: number): void {
    this.free("MPI_Comm_free", comm);
  }

  /** Begins to add up elements of all processes of a communicator; the request is written to an address. */
  iallreduce(
    source: number,
    target: number,
    count: number,
    dtype: SummedType,
    comm: number,
    request: number,
  ): void {
    const { types, sum, inPlace } = this.constants;
    const from = source === target ? inPlace : source;
    const code = this.iallreduceNative(from, target, count, types[dtype], sum, comm, request);
    if (code !== 0) this.check(code, "MPI_Iallreduce");
  }

  /** The handle of the type of bytes. */
  get byteType(): number {
    return this.constants.byte;
  }

  /** Begins to send bytes; the request is written to an address. */
  isend(address: number, bytes: number, rank: number, tag: number, comm: number, request: number): void {
    const code = this.isendNative(address, bytes, this.constants.byte, rank, tag, comm, request);
    if (code !== 0) this.check(code, "MPI_Isend");
  }

  /** Begins to receive bytes; the request is written to an address. */
  irecv(address: number, bytes: number, rank: number, tag: number, comm: number, request: number): void {
    const code = this.irecvNative(address, bytes, this.constants.byte, rank, tag, comm, request);
    if (code !== 0) this.check(code, "MPI_Irecv");
  }

  /** The bytes of a message that has come and waits to be received; undefined while there is none. */
  waitingBytes(rank: number, tag: number, comm: number): number | undefined {
    const types = ["int", "int", this.family.handle, "uintptr_t", "uintptr_t"];
    const status = 16;
    const args = [rank, tag, comm, this.resultsAddress, this.resultsAddress + 4 * status];
    this.call("MPI_Iprobe", types, args);
    return this.results[0] === 0 ? undefined : this.statusBytesReceived(this.results, status);
  }

  /** Begins to wait for all processes; the request is written to an address. */
  ibarrier(comm: number, request: number): void {
    this.call("MPI_Ibarrier", [this.family.handle, "uintptr_t"], [comm, request]);
  }

  /** Looks whether requests are complete; where they are, `flag` is not 0 and the statuses are written. */
  testall(count: number, requests: number, flag: number, statuses: number): number {
    return this.testallNative(count, requests, flag, statuses);
  }

  /** Binds machine code that this process has generated. */
  batchCode(places: CodePlaces): BatchCode {
    const address = (name: string) => Number(this.koffi.address(this.library.symbol(name)));
    const testall = address("MPI_Testall");
    const look = bindCode(this.koffi, places.look, 6);
    return {
      callAll: bindCode(this.koffi, places.callAll, 3),
      look: (count, requests, flag, statuses, times) => look(count, requests, flag, statuses, testall, times),
      isend: address("MPI_Isend"),
      irecv: address("MPI_Irecv"),
    };
  }

  /** The error in a status, given where its words begin. */
  statusError(words: Int32Array, base: number): number {
    return words[base + this.family.statusError] ?? 0;
  }

  /** The number of bytes that a status tells of. */
  statusBytesReceived(words: Int32Array, base: number): number {
    return (words[base + this.family.statusCount] ?? 0) >>> 0;
  }

  /** The library's words for an error. */
  describe(code: number): string {
    const text = new Uint8Array(this.results.buffer, 64);
    const args = [code, this.addressOf(text), this.resultsAddress];
    this.bind("MPI_Error_string", ["int", "uintptr_t", "uintptr_t"])(...args);
    return Buffer.from(text.slice(0, this.results[0])).toString().replaceAll("\0", "");
  }

  /** Throws what a call that failed says. */
  check(code: number, name: string): void {
    if (code !== 0) throw new EngineLoadError(`[mpi] ${name} failed: ${this.describe(code)}`);
  }

  private free(name: string, handle: number): void {
    const words = new Uint32Array(this.results.buffer, 0, 2);
    words[0] = handle >>> 0;
    words[1] = Math.floor(handle / 2 ** 32);
    this.call(name, ["uintptr_t"], [this.resultsAddress]);
  }

  private setErrors(comm: number): void {
    const { handle } = this.family;
    this.call("MPI_Comm_set_errhandler", [handle, handle], [comm, this.constants.errorsReturn]);
  }

  private flag(name: string): boolean {
    this.call(name, ["uintptr_t"], [this.resultsAddress]);
    return this.results[0] !== 0;
  }

  private number(name: string, comm: number): number {
    this.call(name, [this.family.handle, "uintptr_t"], [comm, this.resultsAddress]);
    return this.results[0] ?? 0;
  }

  private readHandle(): number {
    const words = new Uint32Array(this.results.buffer, 0, 2);
    const [low = 0, high = 0] = words;
    return this.family.handleBytes === 8 ? low + high * 2 ** 32 : low;
  }

  private call(name: string, types: readonly string[], args: readonly number[]): void {
    this.check(this.bind(name, types)(...args), name);
  }

  private bind(name: string, types: readonly string[]): Native {
    return getOrInsert(this.functions, name, (): Native => this.library.func(name, "int", [...types]));
  }
}
