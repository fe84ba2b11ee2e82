/**
 * Programs that find everything at the same addresses in every run. XLA starts them as CUDA graphs, a fifth of the work of
 * starting their kernels one by one; but where an address has changed it updates the graph first, which takes longer than
 * both. What is overwritten stays where it is. All else, such as tokens and a loss, is small in most training steps: it is
 * copied to buffers that stay, and from them.
 */
import { allocateHost } from "../../ir/dtype.js";
import { InternalError } from "../../ir/errors.js";
import { newVar, type Program } from "../../ir/program.js";
import { at, bytesOf, sizeOf, type TensorType, tensorType, typesOf } from "../../ir/shape.js";
import { aliasedOutputs, lowerToStableHlo } from "./stablehlo/lower.js";
import type { XlaClient, XlaProgram, XlaRun } from "./xlaClient.js";

/** Maximum number of bytes of inputs, or of outputs, that are copied in every run. */
const MAX_COPIED = 1 << 20;

/** Room for buffers that come and go between runs, such as those of tokens and losses. */
const room = tensorType("uint8", [1 << 25]);

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
  const moving = (values: readonly { readonly type: TensorType }[], isFixed: (i: number) => boolean) => {
    const indices = [...values.keys()].filter((i) => !isFixed(i));
    return { indices, types: typesOf(indices.map((i) => at(values, i))) };
  };
  const inputs = moving(program.inputs, (i) => aliases[i] !== undefined);
  const outputs = moving(program.outputs, (o) => aliases.includes(o));
  const isSmall = ({ types }: Moving) => types.reduce((sum, type) => sum + bytesOf(type), 0) <= MAX_COPIED;
  return isSmall(inputs) && isSmall(outputs) ? { inputs, outputs } : undefined;
}

/** Compiles a program that copies values; over as many others, which come before them, if these are to be overwritten. */
async function compileCopy<A>(
  client: XlaClient<A>,
  device: number,
  { types }: Moving,
  overwrites: boolean,
): Promise<XlaProgram<A> | undefined> {
  if (types.length === 0) return undefined;
  const values = types.map(newVar);
  const others = overwrites ? types.map(newVar) : [];
  const program = { inputs: [...others, ...values], eqns: [], outputs: values };
  const donated = program.inputs.map((_, i) => i < others.length);
  return client.compile(lowerToStableHlo(program, { mesh: { axes: [] }, donated, name: "copy" }).text, [
    device,
  ]);
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

/** The buffers that moving inputs and outputs are copied to and from. */
interface Places<A> {
  readonly inputs: readonly A[];
  readonly outputs: readonly A[];
  /** What keeps free memory before it apart from that behind it. */
  readonly wall: A;
}

/** A program for one device that finds everything at the same addresses in every run. */
export class SteadyProgram<A> implements XlaProgram<A> {
  readonly executeNow?: (inputs: readonly (readonly A[])[]) => XlaRun<A>;
  /** None before the first run, and after one that has failed. */
  private places: Places<A> | undefined;

  private constructor(
    private readonly client: XlaClient<A>,
    private readonly device: number,
    private readonly moving: MovingParts,
    private readonly parts: Parts<A>,
  ) {
    if (parts.main.executeNow) this.executeNow = ([row = []]) => this.runNow(row);
  }

  /** @param compilingMain a program that takes buffers for the moving outputs, which it overwrites, after its own inputs */
  static async compile<A>(
    client: XlaClient<A>,
    device: number,
    moving: MovingParts,
    compilingMain: Promise<XlaProgram<A>>,
  ): Promise<SteadyProgram<A>> {
    const copies = [
      compileCopy(client, device, moving.inputs, true),
      compileCopy(client, device, moving.outputs, false),
    ];
    try {
      const [main, copyIn, copyOut] = await Promise.all([compilingMain, ...copies]);
      return new SteadyProgram(client, device, moving, { main, copyIn, copyOut });
    } catch (error) {
      const others = await Promise.allSettled([compilingMain, ...copies]);
      for (const other of others) if (other.status === "fulfilled") other.value?.destroy();
      throw error;
    }
  }

  async execute([row = []]: readonly (readonly A[])[]): Promise<XlaRun<A>> {
    const starts = this.starts(row);
    let next = starts.next();
    try {
      while (!next.done) next = starts.next(await next.value.program.execute([next.value.row]));
    } catch (error) {
      this.forget();
      throw error;
    }
    return next.value;
  }

  destroy(): void {
    this.forget();
    const { main, copyIn, copyOut } = this.parts;
    for (const program of [main, copyIn, copyOut]) program?.destroy();
  }

  private runNow(row: readonly A[]): XlaRun<A> {
    const starts = this.starts(row);
    let next = starts.next();
    try {
      while (!next.done) {
        const { program, row } = next.value;
        if (!program.executeNow)
          throw new InternalError("[xla] a copy cannot be started on the calling thread");
        next = starts.next(program.executeNow([row]));
      }
    } catch (error) {
      this.forget();
      throw error;
    }
    return next.value;
  }

  private *starts(row: readonly A[]): Starts<A> {
    const { moving } = this;
    const { main, copyIn, copyOut } = this.parts;
    const before = this.places ?? this.newPlaces();
    this.places = before;
    let { inputs } = before;
    if (copyIn) {
      const given = moving.inputs.indices.map((i) => at(row, i));
      const copied = yield { program: copyIn, row: [...inputs, ...given] };
      inputs = at(copied.outputs, 0);
      this.places = { ...before, inputs };
      this.release(before.inputs);
    }
    const run = yield { program: main, row: [...replaced(row, moving.inputs, inputs), ...before.outputs] };
    const made = at(run.outputs, 0);
    const outputs = moving.outputs.indices.map((o) => at(made, o));
    this.places = { ...before, inputs, outputs };
    this.release(before.outputs);
    // What a failed run should have written cannot be read again.
    const forgetIfFailed = ({ done }: XlaRun<A>) => void done.catch(() => this.forget());
    if (!copyOut) {
      forgetIfFailed(run);
      return run;
    }
    const last = yield { program: copyOut, row: outputs };
    const whole = joined(run, last, replaced(made, moving.outputs, at(last.outputs, 0)));
    forgetIfFailed(whole);
    return whole;
  }

  /**
   * XLA's allocator takes small buffers from the smallest free piece, and every run takes its intermediate values from the
   * beginning of the largest. Small buffers get a piece of their own, or else they would move what lies behind them.
   */
  private newPlaces(): Places<A> {
    const { client, device, moving } = this;
    const newBuffer = (type: TensorType) =>
      client.upload(type, allocateHost(type.dtype, sizeOf(type.shape)), device);
    const [free, wall] = [newBuffer(room), newBuffer(room)];
    const places = {
      inputs: moving.inputs.types.map(newBuffer),
      outputs: moving.outputs.types.map(newBuffer),
      wall,
    };
    this.release([free]);
    return places;
  }

  private release(buffers: readonly A[]): void {
    for (const buffer of buffers) this.client.destroy(buffer);
  }

  private forget(): void {
    const { places } = this;
    this.places = undefined;
    if (places) this.release([...places.inputs, ...places.outputs, places.wall]);
  }
}

/** A row with others in the places of those that move. */
function replaced<A>(row: readonly A[], { indices }: Moving, others: readonly A[]): A[] {
  const changed = [...row];
  for (const [k, i] of indices.entries()) changed[i] = at(others, k);
  return changed;
}

/** Two runs, one after the other, as one with these outputs. */
function joined<A>(first: XlaRun<A>, last: XlaRun<A>, outputs: readonly A[]): XlaRun<A> {
  const runs = [first, last];
  return {
    outputs: [outputs],
    done: Promise.all(runs.map(({ done }) => done)).then(() => {}),
    ...(first.poll && last.poll && { poll: () => runs.every((run) => run.poll?.()) }),
    hurry: () => {
      for (const run of runs) run.hurry?.();
    },
  };
}
