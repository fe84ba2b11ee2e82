import type { HostData } from "../ir/dtype.js";
import type { CompileOptions, DeviceBuffer, Engine, Executable } from "../ir/engine.js";
import { DisposedError, ValueError } from "../ir/errors.js";
import { newCounter } from "../ir/identity.js";
import { axesSize, formatMesh } from "../ir/mesh.js";
import type { Program } from "../ir/program.js";
import { at, formatType, range, sameType, type TensorType } from "../ir/shape.js";
import { verify } from "../ir/verify.js";
import { checkHostData } from "./sizeChecks.js";

/**
 * What all engines have in common: their states, ownership and lifetime of buffers, checks of arguments, donation,
 * and the lifetime of executables. An engine extends {@link EngineShell} with how it writes, reads and copies
 * elements, and how it prepares and starts programs.
 */

/**
 * State of an engine: it runs programs (`open`), finishes what is in progress (`closing`), has released everything
 * (`closed`), or runs nothing any more because a device failed, though results can still be read (`failed`).
 */
export type EngineState = "open" | "closing" | "closed" | "failed";

/** A block of elements on a device. */
export class EngineBuffer implements DeviceBuffer {
  private gone: "released" | "donated" | undefined;
  /** @internal The last run that received it, to detect an input that is passed twice. */
  seenBy = 0;

  /** @param owner the engine that made it */
  constructor(
    readonly owner: object,
    readonly type: TensorType,
    readonly device: number,
  ) {}

  /** Whether it can be used: it was neither released nor donated. */
  get isLive(): boolean {
    return this.gone === undefined;
  }

  /** Marks the buffer as unusable; does nothing the second time. */
  dispose(how: "released" | "donated"): void {
    if (this.gone !== undefined) return;
    this.gone = how;
    this.left(how);
  }

  /** @internal Throws if the buffer cannot be used any more. */
  check(caller: string): void {
    if (this.gone === undefined) return;
    throw new DisposedError(
      `[${caller}] this buffer of ${formatType(this.type)} on device ${this.device} was ${this.gone} ` +
        "and cannot be used again: keep a copy, or do not donate it",
    );
  }

  /** Called when the buffer can no longer be used; a run that was started may still read it. */
  protected left(_how: "released" | "donated"): void {}
}

/** For every input or output of a program, one buffer for each position of its mesh that this process holds. */
export type Rows<B> = readonly (readonly B[])[];

/** A program that an engine has prepared. */
export interface LoadedProgram<B> {
  /**
   * Starts a run on checked inputs and returns its outputs; if the run fails later, reading them reports why. If this
   * method throws, nothing was started and all inputs are unchanged.
   *
   * @param donate gives up the donated inputs; if it is not called, that happens after `start` has returned. An engine
   * that computes before it returns must also call it when the run fails, because the run was started.
   */
  start(inputs: Rows<B>, donate: () => void): B[][];
  /** Releases what the program holds, after all started runs; called once. */
  release(): void;
}

/** What the inputs of a program must be. */
export interface Signature {
  /** How messages name the program. */
  readonly name: string;
  readonly inputs: readonly TensorType[];
  /** The engine's device for every position of the mesh that this process holds. */
  readonly devices: readonly number[];
  /** Which inputs are donated. */
  readonly donated: readonly boolean[];
}

/** The signature of a program on some devices. */
export function signatureOf(
  { inputs }: Program,
  { name = "program", donated = [] }: CompileOptions,
  devices: readonly number[],
): Signature {
  return { name, inputs: inputs.map(({ type }) => type), devices, donated };
}

/** Base class of engines; each implements the abstract methods. */
export abstract class EngineShell<B extends EngineBuffer> implements Engine {
  abstract readonly name: string;
  abstract readonly numDevices: number;
  readonly process: Engine["process"] = { index: 0, count: 1 };
  private ending: Promise<void> | undefined;
  private ended = false;
  private readonly ends = new Set<() => void>();

  /** The current state. */
  get state(): EngineState {
    if (this.ended) return "closed";
    if (this.ending) return "closing";
    return this.failure === undefined ? "open" : "failed";
  }

  get isOpen(): boolean {
    return this.state === "open";
  }

  isAddressable(device: number): boolean {
    return Number.isInteger(device) && device >= 0 && device < this.numDevices;
  }

  compile(program: Program, options: CompileOptions): Executable {
    this.checkRuns("compile");
    // What another thread prepared was verified there.
    if (options.prepared === undefined) verify(program, "partitioned");
    checkMeshDevices(options, this.numDevices);
    const devices = options.devices.filter((device) => this.isAddressable(device));
    return this.executable(signatureOf(program, options, devices), this.prepare(program, options, devices));
  }

  upload(type: TensorType, data: HostData, device: number): DeviceBuffer {
    this.checkRuns("upload");
    this.checkDevice(device, "upload");
    checkHostData(type, data, "upload");
    return this.write(type, data, device);
  }

  async download(buffer: DeviceBuffer): Promise<HostData> {
    return this.read(this.own(buffer, "download"));
  }

  async ready(buffer: DeviceBuffer): Promise<void> {
    await this.written(this.own(buffer, "ready"));
  }

  peek(buffer: DeviceBuffer): HostData | undefined {
    return this.view(this.own(buffer, "peek"));
  }

  transfer(buffer: DeviceBuffer, device: number): DeviceBuffer {
    this.checkRuns("transfer");
    const source = this.own(buffer, "transfer");
    this.checkDevice(device, "transfer");
    return this.copy(source, device);
  }

  release(buffer: DeviceBuffer): void {
    // After closing there is nothing left to release, but finalizers may still call this.
    if (this.ending === undefined) this.own(buffer, "release").dispose("released");
  }

  close(): Promise<void> {
    this.ending ??= this.end().finally(() => {
      this.ended = true;
    });
    for (const end of this.ends) end();
    this.ends.clear();
    return this.ending;
  }

  onClose(action: () => void): () => void {
    this.ends.add(action);
    return () => this.ends.delete(action);
  }

  /** Prepares a program that was checked, as was the number of devices. @param devices those of this process */
  protected abstract prepare(
    program: Program,
    options: CompileOptions,
    devices: readonly number[],
  ): LoadedProgram<B>;
  /** Copies elements to a device. */
  protected abstract write(type: TensorType, data: HostData, device: number): B;
  /** Copies elements out once they are computed; the copy completes even if the buffer is released meanwhile. */
  protected abstract read(buffer: B): Promise<HostData>;
  /** Waits until the elements are computed; throws the error if computing them failed. */
  protected abstract written(buffer: B): Promise<void>;
  /** The elements if they are already computed. */
  protected abstract view(buffer: B): HostData | undefined;
  /** Starts copying a buffer to a device, possibly the one that it is on. */
  protected abstract copy(buffer: B, device: number): B;
  /** Ends what is in progress and releases everything. */
  protected abstract end(): Promise<void>;

  /** Why nothing can run any more; undefined in engines whose devices cannot fail. */
  protected get failure(): Error | undefined {
    return undefined;
  }

  /** Makes a prepared program an executable. */
  protected executable<L extends LoadedProgram<B>>(signature: Signature, loaded: L): ShellExecutable<B, L> {
    const host = {
      checkRuns: (caller: string) => this.checkRuns(caller),
      own: (buffer: DeviceBuffer, caller: string) => this.own(buffer, caller),
    };
    return new ShellExecutable(host, signature, loaded);
  }

  /** Throws unless the engine runs programs. */
  protected checkRuns(caller: string): void {
    this.checkOpen(caller);
    if (this.failure) throw this.failure;
  }

  /** Throws if a device is not in this process. */
  protected checkDevice(device: number, caller: string): void {
    if (this.isAddressable(device)) return;
    const { numDevices, process } = this;
    if (process.count > 1 && device >= 0 && device < numDevices) {
      const here = range(numDevices).filter((one) => this.isAddressable(one));
      throw new ValueError(
        `[${caller}] device ${device} is not in process ${process.index}, which has ${here.at(0)} … ${here.at(-1)} of ${numDevices}`,
      );
    }
    throw noDevice(device, numDevices, caller);
  }

  /** The buffer, if it belongs to this engine and can be used; throws otherwise. */
  protected own(buffer: DeviceBuffer, caller: string): B {
    this.checkOpen(caller);
    if (!this.isOwn(buffer)) {
      throw new ValueError(`[${caller}] the buffer of ${formatType(buffer.type)} belongs to another engine`);
    }
    buffer.check(caller);
    return buffer;
  }

  private isOwn(buffer: DeviceBuffer): buffer is B {
    return buffer instanceof EngineBuffer && buffer.owner === this;
  }

  /** Throws after closing; results that were computed before a device failed can still be read. */
  private checkOpen(caller: string): void {
    if (this.ending === undefined) return;
    throw (
      this.failure ?? new DisposedError(`[${caller}] the ${this.name} engine is closed: open another one`)
    );
  }
}

/** What an executable needs of its engine. */
interface Host<B> {
  checkRuns(caller: string): void;
  own(buffer: DeviceBuffer, caller: string): B;
}

const nextRun = newCounter(1);

/** An executable of an engine: checks the inputs of each run, and gives up those that are donated. */
export class ShellExecutable<B extends EngineBuffer, L extends LoadedProgram<B>> implements Executable {
  private readonly donates: boolean;
  private isReleased = false;

  /** @internal */
  constructor(
    private readonly host: Host<B>,
    private readonly signature: Signature,
    readonly loaded: L,
  ) {
    this.donates = signature.donated.includes(true);
  }

  execute(inputs: Rows<DeviceBuffer>): DeviceBuffer[][] {
    const { host, signature } = this;
    host.checkRuns("execute");
    if (this.isReleased) {
      throw new DisposedError(`[execute] ${signature.name} was released: compile it again`);
    }
    if (inputs.length !== signature.inputs.length) {
      throw this.refuse(`${inputs.length} inputs for ${signature.inputs.length}`);
    }
    const rows = inputs.map((row, i) => this.checkRow(row, i));
    if (!this.donates) return this.loaded.start(rows, () => {});
    this.checkAliases(rows);
    const donate = () => {
      for (let i = 0; i < rows.length; i++) {
        if (signature.donated[i]) for (const buffer of at(rows, i)) buffer.dispose("donated");
      }
    };
    const outputs = this.loaded.start(rows, donate);
    donate();
    return outputs;
  }

  release(): void {
    if (!this.isReleased) this.loaded.release();
    this.isReleased = true;
  }

  private checkRow(row: readonly DeviceBuffer[], i: number): B[] {
    const { inputs, devices } = this.signature;
    const type = at(inputs, i);
    if (row.length !== devices.length) {
      throw this.refuse(`input ${i} has ${row.length} buffers for ${devices.length} devices`);
    }
    return row.map((given, position) => {
      const buffer = this.host.own(given, "execute");
      const device = at(devices, position);
      if (buffer.device === device && (buffer.type === type || sameType(buffer.type, type))) return buffer;
      throw this.refuse(
        `input ${i} at position ${position} must be ${formatType(type)} on device ${device}, but is ${formatType(buffer.type)} on device ${buffer.device}`,
      );
    });
  }

  /** Throws if donated memory is passed more than once; allocates nothing, since it runs on every call. */
  private checkAliases(rows: Rows<B>): void {
    const run = nextRun();
    const { donated } = this.signature;
    for (let i = 0; i < rows.length; i++) {
      if (!donated[i]) continue;
      for (const buffer of at(rows, i)) {
        if (buffer.seenBy === run) throw this.refuseAlias(rows, buffer);
        buffer.seenBy = run;
      }
    }
    for (let i = 0; i < rows.length; i++) {
      if (donated[i]) continue;
      for (const buffer of at(rows, i)) if (buffer.seenBy === run) throw this.refuseAlias(rows, buffer);
    }
  }

  private refuseAlias(rows: Rows<B>, buffer: B): ValueError {
    const { donated } = this.signature;
    const places = rows.flatMap((row, i) => (row.includes(buffer) ? [i] : []));
    const first = places.find((i) => donated[i]) ?? 0;
    const other = places.find((i) => i !== first) ?? first;
    return this.refuse(
      `input ${first} is donated, but its buffer of ${formatType(buffer.type)} is also input ${other}: pass a copy, or do not donate it`,
    );
  }

  private refuse(what: string): ValueError {
    return new ValueError(`[execute] ${this.signature.name}: ${what}`);
  }
}

/** Throws unless every position of a mesh has a device of its own. */
export function checkMeshDevices(
  { mesh, devices, name = "program" }: CompileOptions,
  numDevices: number,
): void {
  const size = axesSize(mesh.axes);
  if (devices.length !== size) {
    throw new ValueError(
      `[compile] ${name}: ${devices.length} devices for the ${size} positions of the mesh ${formatMesh(mesh)}`,
    );
  }
  for (const device of devices) {
    if (!(Number.isInteger(device) && device >= 0 && device < numDevices)) {
      throw noDevice(device, numDevices, "compile");
    }
  }
  if (new Set(devices).size !== size) {
    throw new ValueError(`[compile] ${name}: the devices [${devices}] must be different from each other`);
  }
}

function noDevice(device: number, numDevices: number, caller: string): ValueError {
  const has =
    numDevices === 1 ? "the one device is 0" : `use 0 … ${numDevices - 1}, or open an engine with more`;
  return new ValueError(`[${caller}] no device ${device}: ${has}`);
}
