import { type ChildProcessByStdio, spawn } from "node:child_process";
import type { Readable, Writable } from "node:stream";
import { fileURLToPath } from "node:url";
import { XlaError } from "../../src/engines/xla/errors.js";
import type { XlaClient, XlaPlatform, XlaProgram, XlaRun } from "../../src/engines/xla/xlaClient.js";
import { byteSize, type HostData, viewHost } from "../../src/ir/dtype.js";
import { range, type TensorType } from "../../src/ir/shape.js";

/** The Python that has jax: `SHARDWISE_PYTHON`, or the one on the path. */
export const python = process.env.SHARDWISE_PYTHON ?? "python3";

interface Waiting {
  readonly answer: (payload: Uint8Array<ArrayBuffer>) => void;
  readonly fail: (error: Error) => void;
}

/** A client of the XLA in jaxlib, on simulated devices of the CPU in a process of Python. Arrays are numbers. */
export class JaxClient implements XlaClient<number> {
  readonly platform: XlaPlatform = { name: "cpu", version: "jaxlib", deviceKind: "simulated", kernels: [] };
  readonly process = { index: 0, count: 1 };
  private readonly server: ChildProcessByStdio<Writable, Readable, null>;
  private readonly waiting: Waiting[] = [];
  private readonly chunks: Buffer[] = [];
  private received = 0;
  private nextId = 0;

  constructor(readonly numDevices: number) {
    const script = fileURLToPath(new URL("./server.py", import.meta.url));
    this.server = spawn(python, [script, String(numDevices)], { stdio: ["pipe", "pipe", "inherit"] });
    this.server.stdout.on("data", (chunk: Buffer) => this.receive(chunk));
    this.server.on("exit", (code) => this.end(new Error(`${python} ended with code ${code}`)));
    this.server.on("error", (error) => this.end(error));
    this.server.stdin.on("error", (error) => this.end(error));
    // A process that waits for nothing may end although Python does not.
    this.server.unref();
  }

  isAddressable(device: number): boolean {
    return device >= 0 && device < this.numDevices;
  }

  upload(type: TensorType, data: HostData, device: number): number {
    const array = this.nextId++;
    const { dtype, shape } = type;
    this.send({ command: "upload", array, dtype, shape, device }, data);
    return array;
  }

  async download(array: number, type: TensorType): Promise<HostData> {
    const bytes = await this.send({ command: "download", array });
    return viewHost(type.dtype, bytes.buffer, 0, bytes.byteLength / byteSize(type.dtype));
  }

  copy(array: number, device: number): number {
    const to = this.nextId++;
    this.send({ command: "copy", array, device, to });
    return to;
  }

  destroy(array: number): void {
    this.send({ command: "destroy", array });
  }

  async compile(text: string, devices: readonly number[]): Promise<XlaProgram<number>> {
    const program = this.nextId++;
    await this.send({ command: "compile", program, text, devices });
    const numOutputs = numOutputsOf(text);
    return {
      execute: async (inputs): Promise<XlaRun<number>> => {
        const outputs = inputs.map(() => range(numOutputs).map(() => this.nextId++));
        const done = this.send({ command: "execute", program, inputs, outputs }).then(() => {});
        done.catch(() => {});
        return { outputs, done };
      },
      destroy: () => void this.send({ command: "unload", program }),
    };
  }

  /** Other engines go on with the same process, which ends when this one does. */
  async close(): Promise<void> {}

  private send(header: object, data?: HostData): Promise<Uint8Array<ArrayBuffer>> {
    const text = Buffer.from(JSON.stringify({ ...header, bytes: data?.byteLength ?? 0 }));
    const length = Buffer.alloc(4);
    length.writeUInt32LE(text.length);
    const elements = data ? [Buffer.from(data.slice().buffer)] : [];
    this.server.stdin.write(Buffer.concat([length, text, ...elements]));
    const answer = new Promise<Uint8Array<ArrayBuffer>>((resolve, reject) => {
      this.waiting.push({ answer: resolve, fail: reject });
    });
    answer.catch(() => {});
    return answer;
  }

  private receive(chunk: Buffer): void {
    this.chunks.push(chunk);
    this.received += chunk.length;
    for (let bytes = this.take(); bytes !== undefined; bytes = this.take()) {
      const { header, payload } = bytes;
      const waiting = this.waiting.shift();
      if (header.error === undefined) waiting?.answer(payload);
      else waiting?.fail(new XlaError("jaxlib", 2, header.error));
    }
  }

  /** The first whole answer of what was received. */
  private take() {
    if (this.received < 4) return undefined;
    const all = this.chunks.length === 1 ? this.chunks[0] : Buffer.concat(this.chunks);
    if (all === undefined) return undefined;
    this.chunks.splice(0, this.chunks.length, all);
    const begin = 4 + all.readUInt32LE(0);
    if (all.length < begin) return undefined;
    const header: { bytes: number; error?: string } = JSON.parse(all.subarray(4, begin).toString());
    const end = begin + header.bytes;
    if (all.length < end) return undefined;
    const payload = new Uint8Array(header.bytes);
    payload.set(all.subarray(begin, end));
    this.chunks.splice(0, 1, all.subarray(end));
    this.received -= end;
    return { header, payload };
  }

  private end(error: Error): void {
    for (const { fail } of this.waiting.splice(0)) fail(error);
  }
}

/** The number of results of a module's main function, from its first line. */
function numOutputsOf(text: string): number {
  const results = /-> \((.*)\) \{$/m.exec(text)?.[1] ?? "";
  return results === "" ? 0 : results.split(", ").length;
}
