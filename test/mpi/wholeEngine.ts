/**
 * The engine of a job of several processes, for tests that were written for one: every process runs the same test, and
 * each of them reads the values of all devices. What other processes hold is told by them, so that all must read the
 * same things in the same order.
 *
 * `SHARDWISE_ENGINE=…/test/mpi/wholeEngine.ts mpirun -n 2 node …`
 */
import type { EngineOptions } from "../../src/engines/index.js";
import { createMpiEngine, type MpiEngine } from "../../src/engines/mpi/engine.js";
import { allocateHost, type HostData } from "../../src/ir/dtype.js";
import type { CompileOptions, DeviceBuffer, Engine, Executable } from "../../src/ir/engine.js";
import { DisposedError, ValueError } from "../../src/ir/errors.js";
import type { Program } from "../../src/ir/program.js";
import { at, sizeOf, type TensorType } from "../../src/ir/shape.js";

/** A block of any process; `own` is there where this one holds it. */
interface WholeBuffer extends DeviceBuffer {
  readonly device: number;
  readonly own: DeviceBuffer | undefined;
}

/** What the process that holds a block says of it. */
interface Told {
  readonly base64?: string;
  readonly error?: string;
}

class WholeEngine implements Engine {
  readonly name = "mpi";
  readonly process = { index: 0, count: 1 };
  readonly numDevices: number;
  private readonly isOwn = new WeakSet<DeviceBuffer>();
  private telling: Promise<unknown> = Promise.resolve();
  private isClosed = false;

  constructor(private readonly engine: MpiEngine) {
    this.numDevices = engine.numDevices;
  }

  get isOpen(): boolean {
    return !this.isClosed && this.engine.isOpen;
  }

  isAddressable(device: number): boolean {
    return Number.isInteger(device) && device >= 0 && device < this.numDevices;
  }

  compile(program: Program, options: CompileOptions): Executable {
    const devices = options.devices.map((device) => this.place(device));
    const isHere = devices.map((device) => this.engine.isAddressable(device));
    const { engine } = this;
    const executable = isHere.includes(true) ? engine.compile(program, { ...options, devices }) : undefined;
    return {
      execute: (inputs) => {
        if (this.isClosed) throw new DisposedError("[engine] the engine is closed");
        const own = inputs.map((row) => row.flatMap((buffer, i) => (isHere[i] ? [this.ownOf(buffer)] : [])));
        const outputs = executable?.execute(own);
        return program.outputs.map((atom, output) => {
          let next = 0;
          return options.devices.map((device, i) =>
            this.wrap(atom.type, device, isHere[i] ? at(at(outputs ?? [], output), next++) : undefined),
          );
        });
      },
      release: () => executable?.release(),
    };
  }

  upload(type: TensorType, data: HostData, device: number): DeviceBuffer {
    const place = this.place(device);
    const { engine } = this;
    return this.wrap(
      type,
      device,
      engine.isAddressable(place) ? engine.upload(type, data, place) : undefined,
    );
  }

  download(buffer: DeviceBuffer): Promise<HostData> {
    const told = this.telling.then(() => this.tell(this.whole(buffer)));
    this.telling = told.catch(() => {});
    return told;
  }

  async ready(buffer: DeviceBuffer): Promise<void> {
    const { own } = this.whole(buffer);
    if (own !== undefined) await this.engine.ready(own);
  }

  peek(): undefined {
    return undefined;
  }

  transfer(buffer: DeviceBuffer, device: number): DeviceBuffer {
    const { own, type } = this.whole(buffer);
    const [from, to] = [this.place(this.whole(buffer).device), this.place(device)];
    const { engine } = this;
    const [hasSource, hasTarget] = [engine.isAddressable(from), engine.isAddressable(to)];
    if (hasSource !== hasTarget) throw new ValueError(`[transfer] device ${device} is in another process`);
    return this.wrap(type, device, own && engine.transfer(own, to));
  }

  release(buffer: DeviceBuffer): void {
    const { own } = this.whole(buffer);
    if (own !== undefined) this.engine.release(own);
  }

  async close(): Promise<void> {
    this.isClosed = true;
    await this.telling;
    await this.engine.close();
  }

  /** Neighbours on a mesh are in different processes wherever there are enough of them. */
  private place(device: number): number {
    const { count } = this.engine.process;
    return (device % count) * (this.numDevices / count) + Math.floor(device / count);
  }

  private wrap(type: TensorType, device: number, own: DeviceBuffer | undefined): WholeBuffer {
    const buffer = { type, device, own };
    this.isOwn.add(buffer);
    return buffer;
  }

  private whole(buffer: DeviceBuffer): WholeBuffer {
    if (!this.isOwn.has(buffer)) throw new ValueError("[engine] the buffer belongs to another engine");
    return buffer as WholeBuffer;
  }

  private ownOf(buffer: DeviceBuffer): DeviceBuffer {
    const { own, device } = this.whole(buffer);
    if (own === undefined) throw new ValueError(`[engine] device ${device} is in another process`);
    return own;
  }

  private async tell({ own, device, type }: WholeBuffer): Promise<HostData> {
    const { engine } = this;
    let failure: unknown;
    const told: Told = await (async () => {
      if (own === undefined) return {};
      const data = await engine.download(own);
      return { base64: Buffer.from(data.buffer, data.byteOffset, data.byteLength).toString("base64") };
    })().catch((error: unknown) => {
      failure = error;
      return { error: String(error) };
    });
    const all = (await engine.share(JSON.stringify(told))).map((text): Told => JSON.parse(text));
    if (failure !== undefined) throw failure;
    const holder = Math.floor(this.place(device) / (this.numDevices / engine.process.count));
    const { base64, error = "the process that holds it says nothing" } = at(all, holder);
    if (base64 === undefined) throw new ValueError(`[engine] the block of device ${device}: ${error}`);
    const data = allocateHost(type.dtype, sizeOf(type.shape));
    new Uint8Array(data.buffer, data.byteOffset, data.byteLength).set(Buffer.from(base64, "base64"));
    return data;
  }
}

/** Opens the engine of all processes as one that holds every device. */
export function createEngine({ numDevices, ...settings }: EngineOptions): Engine {
  const { memoryBytes, deadlineMs } = settings;
  return new WholeEngine(
    createMpiEngine({
      numDevices,
      ...(memoryBytes === undefined ? {} : { memoryBytes }),
      ...(deadlineMs === undefined ? {} : { deadlineMs }),
    }),
  );
}
