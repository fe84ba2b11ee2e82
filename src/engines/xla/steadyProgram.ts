/**
 * Programs that find everything at the same addresses in every run. XLA starts them as CUDA graphs, which is a fifth of the
 * work of starting their kernels one by one; but if an address has changed it updates the graph first, which takes longer
 * than both. What is overwritten stays where it is. All else, such as tokens and a loss, is small in most training steps:
 * inputs are copied into buffers that stay, and outputs out of them.
 */
import { allocateHost } from "../../ir/dtype.js";
import { InternalError } from "../../ir/errors.js";
import { newVar, type Program } from "../../ir/program.js";
import { at, bytesOfAll, sizeOf, type TensorType, tensorType, typesOf } from "../../ir/shape.js";
import { aliasedOutputs, lowerToStableHlo } from "./stablehlo/lower.js";
import type { XlaClient, XlaProgram, XlaRun } from "./xlaClient.js";

/** Maximum number of bytes of inputs, or of outputs, that are copied in every run. */
const MAX_COPIED = 1 << 20;

/** The memory that is kept for small buffers, such as those of tokens and losses. */
const smallBuffers = tensorType("uint8", [1 << 25]);

/** Inputs or outputs that would be at another address in every run. */
interface Moving {
  readonly indices: readonly number[];
  readonly types: readonly TensorType[];
}

/** What has to be copied so that a program finds everything where it was. */
export interface MovingParts {
  readonly inputs: Moving;
  readonly outputs: Moving;
}

/** The inputs and outputs of a program that do not overwrite each other, if they are small. */
export function smallMovingParts(program: Program, donated: readonly boolean[]): MovingParts | undefined {
  const aliases = aliasedOutputs(program, donated);
  const moving = (all: Program["outputs"], isFixed: (i: number) => boolean) => {
    const indices = [...all.keys()].filter((i) => !isFixed(i));
    const values = indices.map((i) => at(all, i));
    return bytesOfAll(values) <= MAX_COPIED ? { indices, types: typesOf(values) } : undefined;
  };
  const inputs = moving(program.inputs, (i) => aliases[i] !== undefined);
  const outputs = moving(program.outputs, (o) => aliases.includes(o));
  return inputs && outputs && { inputs, outputs };
}

/** Compiles a text for the device of a program. */
type Compile<A> = (text: string) => Promise<XlaProgram<A>>;

/** Compiles a program that copies values, and overwrites as many others with them, which come first, if it is to. */
async function compileCopy<A>(
  compile: Compile<A>,
  { types }: Moving,
  overwrites: boolean,
): Promise<XlaProgram<A> | undefined> {
  if (types.length === 0) return undefined;
  const values = types.map(newVar);
  const others = overwrites ? types.map(newVar) : [];
  const program = { inputs: [...others, ...values], eqns: [], outputs: values };
  const donated = program.inputs.map((_, i) => i < others.length);
  return compile(lowerToStableHlo(program, { mesh: { axes: [] }, donated, name: "copy" }).text);
}

/** A run of one of a program's parts, which is to be started. */
interface Start<A> {
  readonly program: XlaProgram<A>;
  readonly row: readonly A[];
}

/** Starts the parts of a run in turn; returns the whole run. */
type Starts<A> = Generator<Start<A>, XlaRun<A>, XlaRun<A>>;

/** The programs that make up one: it, and what copies its moving inputs and outputs. */
interface Parts<A> {
  readonly main: XlaProgram<A>;
  /** Undefined if nothing moves. */
  readonly copyIn: XlaProgram<A> | undefined;
  readonly copyOut: XlaProgram<A> | undefined;
}

/** The buffers that moving inputs are copied into, and moving outputs out of. */
interface Places<A> {
  inputs: readonly A[];
  outputs: readonly A[];
  /** A buffer behind the memory of small buffers, which keeps it apart from that of intermediate values. */
  readonly separator: A;
  /** Whether a run is being started, which uses the buffers. */
  isInUse: boolean;
}

/** A program for one device that finds everything at the same addresses in every run. */
export class SteadyProgram<A> implements XlaProgram<A> {
  readonly executeNow?: (inputs: readonly (readonly A[])[]) => XlaRun<A>;
  /** None before the first run, and after one that has failed: what it should have written cannot be read again. */
  private places: Places<A> | undefined;

  private constructor(
    private readonly client: XlaClient<A>,
    private readonly device: number,
    private readonly moving: MovingParts,
    private readonly parts: Parts<A>,
  ) {
    if (parts.main.executeNow) this.executeNow = ([row = []]) => this.runNow(row);
  }

  /** @param text of a program that takes buffers for the moving outputs, which it overwrites, after its own inputs */
  static async compile<A>(
    client: XlaClient<A>,
    device: number,
    moving: MovingParts,
    text: string,
    compilers: { readonly main: Compile<A>; readonly copy: Compile<A> },
  ): Promise<SteadyProgram<A>> {
    const compiling = [
      compilers.main(text),
      compileCopy(compilers.copy, moving.inputs, true),
      compileCopy(compilers.copy, moving.outputs, false),
    ] as const;
    try {
      const [main, copyIn, copyOut] = await Promise.all(compiling);
      return new SteadyProgram(client, device, moving, { main, copyIn, copyOut });
    } catch (error) {
      for (const other of await Promise.allSettled(compiling)) {
        if (other.status === "fulfilled") other.value?.destroy();
      }
      throw error;
    }
  }

  async execute([row = []]: readonly (readonly A[])[]): Promise<XlaRun<A>> {
    const starts = this.starts(row);
    let next = starts.next();
    while (!next.done) {
      const { program, row } = next.value;
      next = await program.execute([row]).then(
        (run) => starts.next(run),
        (error: unknown) => starts.throw(error),
      );
    }
    return next.value;
  }

  destroy(): void {
    if (this.places) this.discard(this.places);
    const { main, copyIn, copyOut } = this.parts;
    for (const program of [main, copyIn, copyOut]) program?.destroy();
  }

  private runNow(row: readonly A[]): XlaRun<A> {
    const starts = this.starts(row);
    let next = starts.next();
    while (!next.done) {
      let run: XlaRun<A>;
      try {
        run = startNow(next.value);
      } catch (error) {
        next = starts.throw(error);
        continue;
      }
      next = starts.next(run);
    }
    return next.value;
  }

  private *starts(row: readonly A[]): Starts<A> {
    const { moving } = this;
    const { main, copyIn, copyOut } = this.parts;
    this.places ??= this.newPlaces();
    const { places } = this;
    places.isInUse = true;
    const runs: XlaRun<A>[] = [];
    let made: readonly A[] = [];
    const begin = function* (
      program: XlaProgram<A>,
      row: readonly A[],
    ): Generator<Start<A>, readonly A[], XlaRun<A>> {
      const run = yield { program, row };
      runs.push(run);
      return at(run.outputs, 0);
    };
    try {
      if (copyIn) {
        const given = moving.inputs.indices.map((i) => at(row, i));
        const inputs = yield* begin(copyIn, [...places.inputs, ...given]);
        this.release(places.inputs);
        places.inputs = inputs;
      }
      made = yield* begin(main, [...replaced(row, moving.inputs, places.inputs), ...places.outputs]);
      this.release(places.outputs);
      places.outputs = moving.outputs.indices.map((o) => at(made, o));
      const copies = copyOut ? yield* begin(copyOut, places.outputs) : [];
      const whole = joined(runs, replaced(made, moving.outputs, copies));
      whole.done.catch(() => this.discard(places));
      return whole;
    } catch (error) {
      this.release(made.filter((buffer) => !places.outputs.includes(buffer)));
      this.discard(places);
      throw error;
    } finally {
      places.isInUse = false;
      if (this.places !== places) this.releasePlaces(places);
    }
  }

  /**
   * XLA's allocator takes small buffers from the smallest free piece, and every run takes its intermediate values from the
   * beginning of the largest. Small buffers get a piece of their own, or else they would move what lies behind them. What
   * separates it is as large as the piece, so that it is not put before it.
   */
  private newPlaces(): Places<A> {
    const { client, device, moving } = this;
    const made: A[] = [];
    const newBuffer = (type: TensorType) => {
      const buffer = client.upload(type, allocateHost(type.dtype, sizeOf(type.shape)), device);
      made.push(buffer);
      return buffer;
    };
    try {
      const [piece, separator] = [newBuffer(smallBuffers), newBuffer(smallBuffers)];
      const inputs = moving.inputs.types.map(newBuffer);
      const outputs = moving.outputs.types.map(newBuffer);
      this.release([piece]);
      return { inputs, outputs, separator, isInUse: false };
    } catch (error) {
      this.release(made);
      throw error;
    }
  }

  private release(buffers: readonly A[]): void {
    for (const buffer of buffers) this.client.destroy(buffer);
  }

  /** Makes the next run copy to other places, and releases these unless a run is being started, which does it then. */
  private discard(places: Places<A>): void {
    if (this.places !== places) return;
    this.places = undefined;
    if (!places.isInUse) this.releasePlaces(places);
  }

  private releasePlaces({ inputs, outputs, separator }: Places<A>): void {
    this.release([...inputs, ...outputs, separator]);
  }
}

function startNow<A>({ program, row }: Start<A>): XlaRun<A> {
  if (!program.executeNow) throw new InternalError("[xla] a copy cannot be started on the calling thread");
  return program.executeNow([row]);
}

/** A row with others in the places of those that move. */
function replaced<A>(row: readonly A[], { indices }: Moving, others: readonly A[]): A[] {
  const changed = [...row];
  for (const [k, i] of indices.entries()) changed[i] = at(others, k);
  return changed;
}

/** Runs that follow one another, as one with these outputs. */
function joined<A>(runs: readonly XlaRun<A>[], outputs: readonly A[]): XlaRun<A> {
  return {
    outputs: [outputs],
    numExecutions: runs.length,
    done: Promise.all(runs.map(({ done }) => done)).then(() => {}),
    ...(runs.every(({ poll }) => poll) && { poll: () => runs.every((run) => run.poll?.()) }),
    hurry: () => {
      for (const run of runs) run.hurry?.();
    },
  };
}
