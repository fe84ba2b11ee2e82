import { allocateHost, type HostData } from "../ir/dtype.js";
import type { CompileOptions, DeviceBuffer, Engine, Executable } from "../ir/engine.js";
import { DisposedError, ValueError } from "../ir/errors.js";
import { axesSize, formatMesh } from "../ir/mesh.js";
import type { Program } from "../ir/program.js";
import { at, formatType, type TensorType } from "../ir/shape.js";
import { verify } from "../ir/verify.js";
import { checkHostData, checkSizes } from "./checks.js";
import type { HostTensor } from "./reference/tensor.js";

/** A tensor whose elements an evaluator may move: the array changes, what it holds does not. */
export interface MovableTensor {
  readonly type: TensorType;
  data: HostData;
}

/** How an engine of the calling thread computes. */
export interface Evaluator {
  /** Makes a program ready that was verified. */
  prepare(program: Program, options: CompileOptions): LocalProgram;
  /** Gives back at once what an array takes that nothing reads any more; the garbage collector does it otherwise. */
  free(data: HostData): void;
  /** Gives everything back; no program is run any more. */
  close(): void;
}

/** A program of an evaluator. */
export interface LocalProgram {
  /** @param inputs for every input one block per device @returns the same for every output */
  run(inputs: readonly (readonly MovableTensor[])[]): HostTensor[][];
  release(): void;
}

type State = "ready" | "released" | "donated";

class LocalBuffer implements DeviceBuffer {
  private state: State = "ready";
  /** Whether others may still look at the elements when this buffer is gone. */
  private shown = false;

  constructor(
    readonly owner: LocalEngine,
    readonly device: number,
    private tensor: MovableTensor,
  ) {}

  get type(): TensorType {
    return this.tensor.type;
  }

  read(caller: string): MovableTensor {
    if (this.state !== "ready") {
      throw new DisposedError(
        `[${caller}] this buffer of ${formatType(this.type)} on device ${this.device} was ${this.state} ` +
          "and cannot be used again: keep a copy, or do not donate it",
      );
    }
    return this.tensor;
  }

  /** The tensor for somebody who keeps it. */
  show(caller: string): MovableTensor {
    const tensor = this.read(caller);
    this.shown = true;
    return tensor;
  }

  /** Another buffer of the same elements, which nothing ever writes. */
  alias(device: number): LocalBuffer {
    const alias = new LocalBuffer(this.owner, device, this.show("transfer"));
    alias.shown = true;
    return alias;
  }

  dispose(state: "released" | "donated", evaluator: Evaluator): void {
    const { data } = this.tensor;
    this.state = state;
    this.tensor = { type: this.type, data: allocateHost(this.type.dtype, 0) };
    if (!this.shown) evaluator.free(data);
  }
}

/**
 * An engine that computes at once, on the calling thread; devices are simulated there. What an array holds never
 * changes, so that buffers can share one.
 */
export class LocalEngine implements Engine {
  readonly process = { index: 0, count: 1 };
  readonly selfCollecting = true;
  private closed = false;

  constructor(
    readonly name: string,
    readonly numDevices: number,
    private readonly evaluator: Evaluator,
  ) {}

  get isOpen(): boolean {
    return !this.closed;
  }

  isAddressable(device: number): boolean {
    return Number.isInteger(device) && device >= 0 && device < this.numDevices;
  }

  compile(program: Program, options: CompileOptions): Executable {
    const { mesh, devices, donated = [], name = "program" } = options;
    this.checkOpen("compile");
    verify(program, "partitioned");
    checkSizes(program);
    const numPositions = axesSize(mesh.axes);
    if (devices.length !== numPositions) {
      throw new ValueError(
        `[compile] ${name}: ${devices.length} devices for the ${numPositions} positions of the mesh ` +
          formatMesh(mesh),
      );
    }
    for (const device of devices) this.checkDevice("compile", device);
    const prepared = this.evaluator.prepare(program, options);
    const donates = donated.includes(true);
    let released = false;
    const execute = (inputs: readonly (readonly DeviceBuffer[])[]): DeviceBuffer[][] => {
      this.checkOpen("execute");
      if (released) throw new DisposedError(`[execute] ${name} was released: compile it again`);
      const buffers = inputs.map((row) => row.map((buffer) => this.own("execute", buffer)));
      const tensors = buffers.map((row, i) => {
        checkPlaces(row, devices, `${name}: input ${i}`);
        return row.map((buffer) => buffer.read("execute"));
      });
      const outputs = prepared.run(tensors);
      if (donates) {
        for (const buffer of buffers.filter((_, i) => donated[i]).flat()) {
          buffer.dispose("donated", this.evaluator);
        }
      }
      // An output can be an input's very tensor, and each buffer's elements move by themselves.
      return outputs.map((row) =>
        row.map(({ type, data }, position) => new LocalBuffer(this, at(devices, position), { type, data })),
      );
    };
    const release = () => {
      if (!released) prepared.release();
      released = true;
    };
    return { execute, release };
  }

  upload(type: TensorType, data: HostData, device: number): DeviceBuffer {
    this.checkOpen("upload");
    this.checkDevice("upload", device);
    checkHostData(type, data, "upload");
    return new LocalBuffer(this, device, { type, data: data.slice() });
  }

  async download(buffer: DeviceBuffer): Promise<HostData> {
    this.checkOpen("download");
    return this.own("download", buffer).read("download").data.slice();
  }

  async ready(buffer: DeviceBuffer): Promise<void> {
    this.checkOpen("ready");
    this.own("ready", buffer).read("ready");
  }

  peek(buffer: DeviceBuffer): HostData {
    this.checkOpen("peek");
    return this.own("peek", buffer).show("peek").data;
  }

  transfer(buffer: DeviceBuffer, device: number): DeviceBuffer {
    this.checkOpen("transfer");
    this.checkDevice("transfer", device);
    return this.own("transfer", buffer).alias(device);
  }

  /** After closing there is nothing left to give back, so finalizers may still come here. */
  release(buffer: DeviceBuffer): void {
    if (this.closed) return;
    const own = this.own("release", buffer);
    own.read("release");
    own.dispose("released", this.evaluator);
  }

  async close(): Promise<void> {
    if (!this.closed) this.evaluator.close();
    this.closed = true;
  }

  private own(caller: string, buffer: DeviceBuffer): LocalBuffer {
    if (buffer instanceof LocalBuffer && buffer.owner === this) return buffer;
    throw new ValueError(`[${caller}] the buffer of ${formatType(buffer.type)} belongs to another engine`);
  }

  private checkOpen(caller: string): void {
    if (this.closed) {
      throw new DisposedError(`[${caller}] the ${this.name} engine is closed: create a new one`);
    }
  }

  private checkDevice(caller: string, device: number): void {
    if (!this.isAddressable(device)) {
      throw new ValueError(`[${caller}] device ${device} is not one of the ${this.numDevices} devices`);
    }
  }
}

/** Checks that every buffer lies on the device of its mesh position. */
function checkPlaces(row: readonly LocalBuffer[], devices: readonly number[], what: string): void {
  if (row.length !== devices.length) {
    throw new ValueError(`[execute] ${what} has ${row.length} buffers for ${devices.length} devices`);
  }
  row.forEach(({ device }, position) => {
    if (device === devices[position]) return;
    throw new ValueError(
      `[execute] ${what} at mesh position ${position} lies on device ${device}, ` +
        `not on device ${devices[position]}: transfer it first`,
    );
  });
}
