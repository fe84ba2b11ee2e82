/** What a page does with the devices of its worker: several functions of it at once, each with tensors of its own. */
import { createOneThreadEngine, type OneThreadEngine } from "../../../../../src/engines/oneThread/engine.js";
import type { DeviceBuffer, Executable } from "../../../../../src/ir/engine.js";
import type { MeshShape } from "../../../../../src/ir/mesh.js";
import { range, tensorType } from "../../../../../src/ir/shape.js";
import type { Action, Attempt, PageJob } from "../oneThreadRuns.js";
import type { Block, PageProgram } from "../programs.js";
import "../../../../../src/engines/oneThread/worker.js";

/** A tensor with what its elements must be. */
interface Row {
  readonly buffers: readonly DeviceBuffer[];
  readonly blocks: readonly Block[];
  readonly size: number;
  /** Whether a run that fails comes before it: then there is nothing to read. */
  readonly isDoomed: boolean;
}

class Page {
  readonly engine: OneThreadEngine;
  private readonly executables = new Map<string, Executable>();
  private hostCalls = 0;
  private isDoomed = false;
  /** What is read last: when it arrives, everything before it is done. */
  private readonly last: DeviceBuffer;

  constructor(private readonly job: PageJob) {
    this.engine = createOneThreadEngine({ numDevices: job.numDevices });
    this.last = this.engine.upload(tensorType("float32", [0]), new Float32Array(), 0);
  }

  async use(actions: readonly Action[]): Promise<void> {
    const rows: Row[] = [];
    for (const action of actions) {
      await this.attempt(() => this.act(action, rows), "act");
      if (action.pause > 0)
        await new Promise<void>((resolve) => {
          setTimeout(resolve, action.pause);
        });
    }
    for (const row of rows) await this.read(row);
    for (const row of rows) for (const buffer of row.buffers) this.engine.release(buffer);
  }

  /** Nothing may be left when all has been released. */
  async leave(): Promise<void> {
    const { engine, job } = this;
    await this.attempt(async () => {
      for (const one of this.executables.values()) one.release();
      await engine.download(this.last);
      for (const device of range(job.numDevices)) job.released(engine.memoryUsage(device).used);
    }, "act");
    await engine.close();
    job.closed(engine.state);
  }

  private async act({ kind, size, program, pick, values }: Action, rows: Row[]): Promise<void> {
    const { engine, job } = this;
    const row = rows.length === 0 ? undefined : rows[pick % rows.length];
    if (kind === "close") {
      job.happens("close");
      await engine.close();
    } else if (kind === "upload" || row === undefined) {
      const blocks = range(job.numDevices).map((device) => ({ first: values + device, step: values % 3 }));
      const count = job.sizes[size] ?? 0;
      const type = tensorType("float32", [count]);
      const buffers = this.onDevices((device) =>
        engine.upload(type, Float32Array.from(elements(blocks[device], count)), device),
      );
      rows.push({ buffers, blocks, size, isDoomed: false });
    } else if (kind === "run") this.run(job.programs[row.size]?.[program], row, rows);
    else if (kind === "copy") {
      const { buffers } = row;
      const copies = this.onDevices((device) => engine.transfer(buffers[device] as DeviceBuffer, device));
      rows.push({ ...row, buffers: copies });
    } else if (kind === "read") await this.read(row);
    else if (kind === "release") {
      rows.splice(rows.indexOf(row), 1);
      for (const buffer of row.buffers) engine.release(buffer);
    } else {
      for (const one of this.executables.values()) one.release();
      this.executables.clear();
    }
  }

  /** Makes a buffer on every device, or on none. */
  private onDevices(make: (device: number) => DeviceBuffer): DeviceBuffer[] {
    const made: DeviceBuffer[] = [];
    try {
      for (const device of range(this.job.numDevices)) made.push(make(device));
    } catch (error) {
      for (const buffer of made) this.engine.release(buffer);
      throw error;
    }
    return made;
  }

  private run(program: PageProgram | undefined, row: Row, rows: Row[]): void {
    if (program === undefined) throw new Error("no such program");
    const { job } = this;
    // Sums grow; what is larger cannot be compared exactly.
    if (row.blocks.some(({ first }) => first > 100_000)) return;
    const [outputs] = this.executable(program, row.size, job.mesh).execute([row.buffers]);
    if (outputs === undefined) throw new Error("a program without results");
    if (program.donated) rows.splice(rows.indexOf(row), 1);
    if (program.calls) {
      this.hostCalls += job.numDevices;
      if (job.throwsBefore(this.hostCalls)) this.fail("throw");
    }
    const blocks = program.result?.(row.blocks);
    if (blocks === undefined) this.fail("diverge");
    rows.push({
      buffers: outputs,
      blocks: blocks ?? row.blocks,
      size: row.size,
      isDoomed: this.isDoomed || row.isDoomed,
    });
  }

  /** The run that was just started fails, unless one before it does. */
  private fail(kind: "throw" | "diverge"): void {
    if (!this.isDoomed) this.job.happens(kind);
    this.isDoomed = true;
  }

  private executable({ name, program, donated }: PageProgram, size: number, mesh: MeshShape): Executable {
    const key = `${name} ${size}`;
    const made =
      this.executables.get(key) ??
      this.engine.compile(program, {
        mesh,
        devices: range(this.job.numDevices),
        name,
        ...(donated && { donated: [true] }),
      });
    this.executables.set(key, made);
    return made;
  }

  /** Reads a tensor, all devices at once; one that was computed before a failure can still be read. */
  private async read(row: Row): Promise<void> {
    const { engine, job } = this;
    const { buffers, blocks, isDoomed } = row;
    await this.attempt(
      async () => {
        const data = await Promise.all(buffers.map((buffer) => engine.download(buffer)));
        if (isDoomed) job.wrong("a run that fails has results");
        for (let device = 0; device < blocks.length; device++) {
          const [got, block] = [data[device], blocks[device]];
          if (got === undefined || block === undefined) job.wrong("a device is missing");
          else if (String(elements(block, got.length)) !== String(Array.from(got)))
            job.wrong(`device ${device} has ${got.slice(0, 8)} instead of ${JSON.stringify(block)}`);
        }
      },
      isDoomed ? "read what failed" : "read",
    );
  }

  /** Does something that may fail if a fault explains it. */
  private async attempt(action: () => Promise<void>, what: Attempt): Promise<void> {
    try {
      await action();
    } catch (error) {
      this.job.failed(error, what);
    }
  }
}

function elements(block: Block | undefined, count: number): number[] {
  const { first, step } = block ?? { first: Number.NaN, step: 0 };
  return range(count).map((i) => first + step * (i % 7));
}

/** Uses an engine from several functions at once, and then closes it. */
export async function usePage(job: PageJob): Promise<void> {
  const page = new Page(job);
  await Promise.all(job.users.map((actions) => page.use(actions)));
  await page.leave();
}
