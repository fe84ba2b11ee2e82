import { getOrInsert } from "../../ir/collections.js";
import { at } from "../../ir/shape.js";
import { DeviceFailedError, OutOfMemoryError } from "../errors.js";
import { type Gpu, MAP_READ, USAGE } from "./gpu.js";
import { type GpuBlock, GpuMemory, type Range } from "./gpuMemory.js";
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
  private readonly arenas = new Map<number, Map<string, GpuBlock>>();
  private submitted = 0;
  private isFlushing = false;
  private checks = Promise.resolve();
  private isDestroyed = false;

  /** @param firstDevice the number of the first device that it has */
  constructor(
    readonly gpu: Gpu,
    capacity: number,
    readonly firstDevice = 0,
  ) {
    const watch = (errors: Promise<GPUError | null>, what: string) => this.watch(errors, what);
    this.memory = new GpuMemory(gpu, capacity, watch, () => this.submit());
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
    this.failure ??= new DeviceFailedError({ device: this.firstDevice }, reason);
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
  upload(block: GpuBlock, bytes: Uint8Array): void {
    const size = Math.ceil(bytes.byteLength / 4) * 4;
    let padded = bytes;
    if (size !== bytes.byteLength || !(bytes.buffer instanceof ArrayBuffer)) {
      padded = new Uint8Array(size);
      padded.set(bytes);
    }
    let written = 0;
    for (const part of this.memory.ranges({ ...block, bytes: size })) {
      const own = padded.subarray(written, written + part.bytes);
      this.write(part.buffer, part.offset, own as Uint8Array<ArrayBuffer>);
      written += part.bytes;
    }
  }

  /** Copies the bytes of a block to another one. */
  copy(source: GpuBlock, target: GpuBlock, bytes: number): void {
    const size = Math.ceil(bytes / 4) * 4;
    const rest = ({ slab, address }: GpuBlock, from: number): Range =>
      at(this.memory.ranges({ slab, address: address + from, bytes: size - from }), 0);
    for (let copied = 0; copied < size; ) {
      const [from, to] = [rest(source, copied), rest(target, copied)];
      const count = Math.min(from.bytes, to.bytes);
      this.copyRange({ ...from, bytes: count }, to);
      copied += count;
    }
    this.submit();
  }

  /** A buffer cannot be copied to itself, so that goes through another one. */
  private copyRange({ buffer, offset, bytes }: Range, to: Range): void {
    if (buffer !== to.buffer) {
      this.commands().copyBufferToBuffer(buffer, offset, to.buffer, to.offset, bytes);
      return;
    }
    const usage = USAGE.copySource | USAGE.copyTarget;
    const between = this.gpu.device.createBuffer({ size: bytes, usage });
    this.commands().copyBufferToBuffer(buffer, offset, between, 0, bytes);
    this.commands().copyBufferToBuffer(between, 0, buffer, to.offset, bytes);
    this.submit();
    between.destroy();
  }

  /** Copies blocks to the host, once all submitted commands have run; each begins at a word. */
  async read(blocks: readonly GpuBlock[]): Promise<Uint8Array<ArrayBuffer>[]> {
    const parts = blocks.map((block) => this.memory.ranges(block));
    const read = await this.download(parts.flat());
    return parts.map((own) => {
      const pieces = read.splice(0, own.length);
      const [first = new Uint8Array(0)] = pieces;
      return pieces.length < 2 ? first : joined(pieces);
    });
  }

  /** Copies ranges of buffers to the host, once all submitted commands have run; each begins at a word. */
  async download(ranges: readonly Range[]): Promise<Uint8Array<ArrayBuffer>[]> {
    const sizes = ranges.map(({ bytes }) => Math.ceil(bytes / 4) * 4);
    const places = placesIn(sizes, this.memory.largest);
    const totals: number[] = [];
    for (const [i, { buffer, start }] of places.entries()) totals[buffer] = start + at(sizes, i);
    const usage = USAGE.mapRead | USAGE.copyTarget;
    const staging = totals.map((size) => this.gpu.device.createBuffer({ size: Math.max(4, size), usage }));
    ranges.forEach(({ buffer, offset }, i) => {
      const { buffer: target, start } = at(places, i);
      const size = at(sizes, i);
      if (size > 0) this.commands().copyBufferToBuffer(buffer, offset, at(staging, target), start, size);
    });
    this.submit();
    try {
      await Promise.all(staging.map((buffer) => buffer.mapAsync(MAP_READ)));
    } catch (error) {
      await this.settled();
      throw this.failure ?? error;
    }
    const mapped = staging.map((buffer) => new Uint8Array(buffer.getMappedRange()));
    const copies = ranges.map(({ bytes }, i) => {
      const { buffer, start } = at(places, i);
      return at(mapped, buffer).slice(start, start + bytes);
    });
    for (const buffer of staging) {
      buffer.unmap();
      buffer.destroy();
    }
    await this.settled();
    if (this.failure) throw this.failure;
    return copies;
  }

  /** Memory for the intermediate values of a device's programs, page by page; nothing in it survives a run. */
  arena(device: number, pages: readonly number[]): readonly GpuBlock[] {
    const known = getOrInsert(this.arenas, device, () => new Map());
    return pages.map((bytes, page) => {
      // A program whose page fits into fewer buffers than that of another one has shaders with fewer of them.
      const key = `${page} of ${this.memory.numBuffers(bytes)}`;
      const block = known.get(key);
      if (block && block.bytes >= bytes) return block;
      if (block) this.memory.release(block);
      known.delete(key);
      const larger = this.memory.allocate(bytes, "intermediate values");
      known.set(key, larger);
      return larger;
    });
  }

  /** Bytes of a device's arena. */
  arenaBytes(device: number): number {
    const blocks = [...(this.arenas.get(device)?.values() ?? [])];
    return blocks.reduce((sum, { bytes }) => sum + bytes, 0);
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

/** Where pieces lie one after the other in as few buffers as they fit into. */
function placesIn(sizes: readonly number[], largest: number): { buffer: number; start: number }[] {
  let [buffer, end] = [0, 0];
  return sizes.map((size) => {
    if (end > 0 && end + size > largest) [buffer, end] = [buffer + 1, 0];
    end += size;
    return { buffer, start: end - size };
  });
}

function joined(pieces: readonly Uint8Array[]): Uint8Array<ArrayBuffer> {
  const all = new Uint8Array(pieces.reduce((sum, { length }) => sum + length, 0));
  let length = 0;
  for (const piece of pieces) {
    all.set(piece, length);
    length += piece.length;
  }
  return all;
}
