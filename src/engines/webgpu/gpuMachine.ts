import { getOrInsert } from "../../ir/collections.js";
import { at } from "../../ir/shape.js";
import { DeviceFailedError, OutOfMemoryError } from "../errors.js";
import { type Gpu, MAP_READ, USAGE } from "./gpu.js";
import { type GpuBlock, GpuMemory } from "./gpuMemory.js";
import { Shaders } from "./shaders.js";

/** Milliseconds between two submissions of short programs. */
const SUBMIT_EVERY = 0.2;

/** An open GPU with its memory and shaders, and the commands that have been recorded but not submitted. */
export class Machine {
  readonly memory: GpuMemory;
  readonly shaders: Shaders;
  /** Why nothing can run any more. */
  failure: Error | undefined;
  private encoder: GPUCommandEncoder | undefined;
  private pass: GPUComputePassEncoder | undefined;
  private readonly arenas = new Map<number, GpuBlock[]>();
  private submitted = 0;
  private isFlushing = false;
  private checks = Promise.resolve();
  private isDestroyed = false;

  constructor(
    readonly gpu: Gpu,
    capacity: number,
  ) {
    const watch = (errors: Promise<GPUError | null>, what: string) => this.watch(errors, what);
    this.memory = new GpuMemory(gpu, capacity, watch);
    this.shaders = new Shaders(gpu, watch);
    const { device } = gpu;
    device.addEventListener?.("uncapturederror", (event) => {
      const { message } = (event as GPUUncapturedErrorEvent).error;
      // A shader that was refused is the reason for what follows from it, but is reported later.
      const fail = () => this.fail(`WebGPU: ${message}`);
      this.checks = this.checks.then(fail);
    });
    device.lost.then(({ reason, message }) => {
      if (!this.isDestroyed)
        this.fail(`the GPU was lost (${reason || "unknown reason"}): ${message || "no message"}`);
    });
  }

  /** Ends everything with a reason, unless something already has. */
  fail(reason: string): void {
    this.failure ??= new DeviceFailedError({ device: 0 }, reason);
  }

  /** The pass that is being recorded, or a new one that is timed. */
  compute(timestampWrites?: GPUComputePassTimestampWrites): GPUComputePassEncoder {
    if (timestampWrites) this.pass = this.commands().beginComputePass({ timestampWrites });
    this.encoder ??= this.gpu.device.createCommandEncoder();
    this.pass ??= this.encoder.beginComputePass();
    return this.pass;
  }

  /** The commands that are being recorded, outside of passes. */
  commands(): GPUCommandEncoder {
    this.pass?.end();
    this.pass = undefined;
    this.encoder ??= this.gpu.device.createCommandEncoder();
    return this.encoder;
  }

  /** Submits what has been recorded. */
  submit(): void {
    if (this.encoder === undefined) return;
    const commands = this.commands().finish();
    this.encoder = undefined;
    this.gpu.device.queue.submit([commands]);
    this.submitted = performance.now();
  }

  /**
   * Submits what has been recorded, at once if the last time was a while ago, else together with what follows: a
   * submission costs as much as recording a short program. It is over when the caller first waits for something.
   */
  submitSoon(): void {
    if (performance.now() - this.submitted >= SUBMIT_EVERY) this.submit();
    if (this.encoder === undefined || this.isFlushing) return;
    this.isFlushing = true;
    queueMicrotask(() => {
      this.isFlushing = false;
      this.submit();
    });
  }

  /** Copies words to a buffer after everything that has been recorded. */
  write(buffer: GPUBuffer, offset: number, words: Uint8Array<ArrayBuffer> | Uint32Array<ArrayBuffer>): void {
    this.submit();
    this.gpu.device.queue.writeBuffer(buffer, offset, words);
  }

  /** Copies bytes to a block; padding at their end may be written, too. */
  upload(block: GpuBlock, bytes: Uint8Array, offset = 0): void {
    const size = Math.ceil(bytes.byteLength / 4) * 4;
    let padded = bytes;
    if (size !== bytes.byteLength || !(bytes.buffer instanceof ArrayBuffer)) {
      padded = new Uint8Array(size);
      padded.set(bytes);
    }
    if (size > 0) {
      const target = this.memory.buffer(block.slab);
      this.write(target, block.address + offset, padded as Uint8Array<ArrayBuffer>);
    }
  }

  /** Copies ranges of buffers to the host, once all submitted commands have run; each begins at a word. */
  async download(ranges: readonly Range[]): Promise<Uint8Array<ArrayBuffer>[]> {
    const { device } = this.gpu;
    const sizes = ranges.map(({ bytes }) => Math.ceil(bytes / 4) * 4);
    const total = sizes.reduce((sum, size) => sum + size, 0);
    if (total === 0) return ranges.map(() => new Uint8Array(0));
    const staging = device.createBuffer({ size: total, usage: USAGE.mapRead | USAGE.copyTarget });
    let place = 0;
    const places = ranges.map(({ buffer, offset }, i) => {
      const size = at(sizes, i);
      if (size > 0) this.commands().copyBufferToBuffer(buffer, offset, staging, place, size);
      place += size;
      return place - size;
    });
    this.submit();
    try {
      await staging.mapAsync(MAP_READ);
    } catch (error) {
      await this.settled();
      throw this.failure ?? error;
    }
    const all = new Uint8Array(staging.getMappedRange());
    const copies = ranges.map(({ bytes }, i) => all.slice(at(places, i), at(places, i) + bytes));
    staging.unmap();
    staging.destroy();
    await this.settled();
    if (this.failure) throw this.failure;
    return copies;
  }

  /** Memory for the intermediate values of a device's programs, page by page; nothing in it survives a run. */
  arena(device: number, pages: readonly number[]): readonly GpuBlock[] {
    const known = getOrInsert(this.arenas, device, () => []);
    pages.forEach((bytes, page) => {
      const block = known[page];
      if (block && block.bytes >= bytes) return;
      if (block) this.memory.release(block);
      delete known[page];
      known[page] = this.memory.allocate(bytes, "intermediate values");
    });
    return known;
  }

  /** Bytes of a device's arena. */
  arenaBytes(device: number): number {
    return (this.arenas.get(device) ?? []).reduce((sum, { bytes }) => sum + bytes, 0);
  }

  /** Waits until WebGPU has said whether what was made so far is in order. */
  async settled(): Promise<void> {
    await this.checks;
  }

  destroy(): void {
    this.submit();
    this.isDestroyed = true;
    this.memory.destroy();
    this.gpu.device.destroy();
  }

  private watch(errors: Promise<GPUError | null>, what: string): void {
    const check = async (): Promise<void> => {
      const error = await errors.catch((cause: unknown) => ({ message: String(cause) }));
      if (error === null) return;
      const isMemory = typeof GPUOutOfMemoryError !== "undefined" && error instanceof GPUOutOfMemoryError;
      if (isMemory || what.startsWith("memory of")) {
        this.failure ??= new OutOfMemoryError(
          `[webgpu] the GPU has no ${what} left: use smaller batches or models, or close other programs; ${error.message}`,
        );
      } else this.fail(`a shader of ${what} is refused: ${error.message}`);
    };
    this.checks = Promise.all([this.checks, check()]).then(() => {});
  }
}

/** A range of a buffer. */
export interface Range {
  readonly buffer: GPUBuffer;
  readonly offset: number;
  readonly bytes: number;
}
