import { allocateHost, type HostData } from "../../ir/dtype.js";
import type { CompileOptions, DeviceBuffer, Engine, Executable } from "../../ir/engine.js";
import { DisposedError, ValueError } from "../../ir/errors.js";
import { axesSize, formatMesh } from "../../ir/mesh.js";
import type { Program } from "../../ir/program.js";
import { at, formatType, type TensorType } from "../../ir/shape.js";
import { verify } from "../../ir/verify.js";
import { checkHostData } from "../checks.js";
import { interpretSpmd } from "./interpret.js";
import type { HostTensor } from "./tensor.js";

/** How the reference engine is made. */
export interface ReferenceEngineOptions {
  /** How many devices it simulates; as many as a mesh asks for unless said otherwise. */
  readonly numDevices?: number;
}

/** An engine that interprets programs in this thread: slow, simple, and the meaning of every op. */
export function createReferenceEngine(options: ReferenceEngineOptions = {}): Engine {
  return new ReferenceEngine(options.numDevices ?? Number.POSITIVE_INFINITY);
}

type State = "ready" | "released" | "donated";

class ReferenceBuffer implements DeviceBuffer {
  private state: State = "ready";

  constructor(
    readonly owner: ReferenceEngine,
    readonly device: number,
    private tensor: HostTensor,
  ) {}

  get type(): TensorType {
    return this.tensor.type;
  }

  read(caller: string): HostTensor {
    if (this.state !== "ready") {
      throw new DisposedError(
        `[${caller}] this buffer of ${formatType(this.type)} on device ${this.device} was ${this.state} ` +
          "and cannot be used again: keep a copy, or do not donate it",
      );
    }
    return this.tensor;
  }

  dispose(state: "released" | "donated"): void {
    this.state = state;
    this.tensor = { type: this.type, data: allocateHost(this.type.dtype, 0) };
  }
}

class ReferenceEngine implements Engine {
  readonly name = "reference";
  readonly process = { index: 0, count: 1 };
  readonly selfCollecting = true;
  private closed = false;

  constructor(readonly numDevices: number) {}

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
    const numPositions = axesSize(mesh.axes);
    if (devices.length !== numPositions) {
      throw new ValueError(
        `[compile] ${name}: ${devices.length} devices for the ${numPositions} positions of the mesh ` +
          formatMesh(mesh),
      );
    }
    for (const device of devices) this.checkDevice("compile", device);
    let released = false;
    const execute = (inputs: readonly (readonly DeviceBuffer[])[]): DeviceBuffer[][] => {
      this.checkOpen("execute");
      if (released) throw new DisposedError(`[execute] ${name} was released: compile it again`);
      const buffers = inputs.map((row) => row.map((buffer) => this.own("execute", buffer)));
      const tensors = buffers.map((row, i) => {
        checkPlaces(row, devices, `${name}: input ${i}`);
        return row.map((buffer) => buffer.read("execute"));
      });
      const outputs = interpretSpmd(program, mesh, tensors);
      for (const buffer of buffers.filter((_, i) => donated[i]).flat()) buffer.dispose("donated");
      return outputs.map((row) =>
        row.map((tensor, position) => new ReferenceBuffer(this, at(devices, position), tensor)),
      );
    };
    const release = () => {
      released = true;
    };
    return { execute, release };
  }

  upload(type: TensorType, data: HostData, device: number): DeviceBuffer {
    this.checkOpen("upload");
    this.checkDevice("upload", device);
    checkHostData(type, data, "upload");
    return new ReferenceBuffer(this, device, { type, data: data.slice() });
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
    return this.own("peek", buffer).read("peek").data;
  }

  transfer(buffer: DeviceBuffer, device: number): DeviceBuffer {
    this.checkOpen("transfer");
    this.checkDevice("transfer", device);
    return new ReferenceBuffer(this, device, this.own("transfer", buffer).read("transfer"));
  }

  /** After closing there is nothing left to give back, so finalizers may still come here. */
  release(buffer: DeviceBuffer): void {
    if (this.closed) return;
    const own = this.own("release", buffer);
    own.read("release");
    own.dispose("released");
  }

  async close(): Promise<void> {
    this.closed = true;
  }

  private own(caller: string, buffer: DeviceBuffer): ReferenceBuffer {
    if (buffer instanceof ReferenceBuffer && buffer.owner === this) return buffer;
    throw new ValueError(`[${caller}] the buffer of ${formatType(buffer.type)} belongs to another engine`);
  }

  private checkOpen(caller: string): void {
    if (this.closed) {
      throw new DisposedError(`[${caller}] the reference engine is closed: create a new one`);
    }
  }

  private checkDevice(caller: string, device: number): void {
    if (!this.isAddressable(device)) {
      throw new ValueError(`[${caller}] device ${device} is not one of the ${this.numDevices} devices`);
    }
  }
}

/** Checks that every buffer lies on the device of its mesh position. */
function checkPlaces(row: readonly ReferenceBuffer[], devices: readonly number[], what: string): void {
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
