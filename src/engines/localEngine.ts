import { allocateHost, type HostData } from "../ir/dtype.js";
import type { CompileOptions, DeviceBuffer } from "../ir/engine.js";
import type { Program } from "../ir/program.js";
import { at, type TensorType } from "../ir/shape.js";
import type { HostTensor } from "./reference/hostTensor.js";
import { EngineBuffer, EngineShell, type LoadedProgram, type Rows } from "./shell.js";
import { checkSizes } from "./sizeChecks.js";

/** A tensor whose elements an evaluator may move to another array; their values do not change. */
export interface MovableTensor {
  readonly type: TensorType;
  data: HostData;
}

/** How an engine on the calling thread computes. */
export interface Evaluator {
  /** Prepares a verified program. */
  prepare(program: Program, options: CompileOptions): LocalProgram;
  /** Releases the memory of an array that nothing reads any more, without waiting for the garbage collector. */
  free(data: HostData): void;
  /** Releases everything; no program may run afterwards. */
  close(): void;
}

/** A program that an evaluator has prepared. */
export interface LocalProgram {
  /** @param inputs for every input one block per device @returns the same for every output */
  run(inputs: Rows<MovableTensor>): HostTensor[][];
  release(): void;
}

class LocalBuffer extends EngineBuffer {
  /** Whether the elements may still be read after this buffer is released. */
  shown = false;

  constructor(
    owner: LocalEngine,
    device: number,
    public tensor: MovableTensor,
    private readonly evaluator: Evaluator,
  ) {
    super(owner, tensor.type, device);
  }

  /** The elements, for a caller that keeps them. */
  show(): HostData {
    this.shown = true;
    return this.tensor.data;
  }

  protected override left(): void {
    const { data } = this.tensor;
    // The tensor itself may be a result.
    this.tensor = { type: this.type, data: allocateHost(this.type.dtype, 0) };
    if (!this.shown) this.evaluator.free(data);
  }
}

/**
 * An engine that computes at once, on the calling thread, where it also simulates devices. Arrays are never
 * modified, so buffers can share them.
 */
export class LocalEngine extends EngineShell<LocalBuffer> {
  readonly selfCollecting = true;

  constructor(
    readonly name: string,
    readonly numDevices: number,
    private readonly evaluator: Evaluator,
  ) {
    super();
  }

  protected prepare(
    program: Program,
    options: CompileOptions,
    devices: readonly number[],
  ): LoadedProgram<LocalBuffer> {
    checkSizes(program);
    const prepared = this.evaluator.prepare(program, options);
    const run = (inputs: Rows<LocalBuffer>, donate: () => void): HostTensor[][] => {
      const tensors = inputs.map((row) => row.map(({ tensor }) => tensor));
      try {
        return prepared.run(tensors);
      } finally {
        donate();
      }
    };
    return {
      // An output can be an input's very tensor, and each buffer's elements move by themselves.
      start: (inputs, donate) =>
        run(inputs, donate).map((row) =>
          row.map(({ type, data }, position) => this.newBuffer(type, data, at(devices, position))),
        ),
      release: () => prepared.release(),
    };
  }

  protected write(type: TensorType, data: HostData, device: number): LocalBuffer {
    return this.newBuffer(type, data.slice(), device);
  }

  protected async read({ tensor }: LocalBuffer): Promise<HostData> {
    return tensor.data.slice();
  }

  async downloadInto(buffer: DeviceBuffer, start: number, target: Uint8Array): Promise<void> {
    const { data } = this.own(buffer, "downloadInto").tensor;
    target.set(new Uint8Array(data.buffer, data.byteOffset + start, target.length));
  }

  protected async written(): Promise<void> {}

  protected view(buffer: LocalBuffer): HostData {
    return buffer.show();
  }

  /** Another buffer of the same elements, which nothing ever writes. */
  protected copy(buffer: LocalBuffer, device: number): LocalBuffer {
    const alias = this.newBuffer(buffer.type, buffer.show(), device);
    alias.shown = true;
    return alias;
  }

  protected async end(): Promise<void> {
    this.evaluator.close();
  }

  private newBuffer(type: TensorType, data: HostData, device: number): LocalBuffer {
    return new LocalBuffer(this, device, { type, data }, this.evaluator);
  }
}
