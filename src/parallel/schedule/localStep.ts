/** One stage's program of a scheduled training step: a loop over slots that branches to the action of each slot. */
import { isFloat } from "../../ir/dtype.js";
import { ShapeError } from "../../ir/errors.js";
import { at, formatType, range, sameType, type TensorType } from "../../ir/shape.js";
import * as lax from "../../lax/index.js";
import * as np from "../../numpy/index.js";
import { ppermuteUnset } from "../../spmd/mesh/collectives.js";
import * as ops from "../../trace/ops.js";
import { Tensor } from "../../trace/tensor.js";
import * as tree from "../../trace/tree.js";
import { cond, switchWithRole } from "../../transforms/control/cond.js";
import { scanWithRole } from "../../transforms/control/scan.js";
import { type Given, type KeptValues, type Lifetime, mapLifetimes, PartPrograms } from "./parts.js";
import type { PipelineSchedule } from "./schedule.js";
import {
  type Branch,
  cellNumbers,
  type Direction,
  mapCell,
  mapParts,
  neighbours,
  type Pair,
  type PartName,
  type SlotCell,
  type SlotTable,
  type StageLink,
} from "./slots.js";

/** The settings of a step, besides its functions. */
export interface LocalStep {
  readonly table: SlotTable;
  readonly schedule: PipelineSchedule;
  readonly axisName: string;
  readonly batchAxes: readonly string[];
  readonly overlapSends: boolean;
  readonly hasAux: boolean;
}

/** The functions of a step, with types that only the caller knows. */
export interface LocalFunctions {
  readonly first: (...args: never[]) => unknown;
  readonly stage: (...args: never[]) => unknown;
  readonly last: (...args: never[]) => unknown;
}

type Buffers = { readonly [P in PartName]: { readonly [L in Lifetime]: readonly Tensor[] } };

/** Everything that a stage carries from slot to slot. */
interface State {
  /** The result of the last action that sends one. */
  readonly outbox: readonly Tensor[];
  /** Messages received and not read yet. */
  readonly arrived: readonly Tensor[];
  readonly kept: Buffers;
  readonly grads: {
    readonly first: readonly Tensor[];
    readonly chunks: readonly (readonly Tensor[])[];
    readonly last: readonly Tensor[];
  };
  /** The sums of the losses and of what else `last` returns. */
  readonly sums: readonly Tensor[];
}

interface Weights {
  readonly first: unknown;
  readonly stages: unknown;
  readonly last: unknown;
}

/** The step of one stage: `(weights, inputs, targets) → [value, gradients]`, for the body of a shard map. */
export function localTrainStep(functions: LocalFunctions, settings: LocalStep) {
  return (weights: Weights, inputs: unknown, targets: unknown): [value: unknown, grads: Weights] => {
    const { numMicrobatches } = settings.schedule;
    const runner = new StageRunner(
      functions,
      settings,
      weights,
      microbatches(inputs, numMicrobatches),
      microbatches(targets, numMicrobatches),
    );
    return runner.results(runner.run());
  };
}

/** A batch as microbatches: every leaf [microbatches, rows, …]. */
function microbatches(batch: unknown, count: number): unknown {
  return tree.map((leaf: Tensor) => {
    const [rows = 0, ...rest] = leaf.shape;
    return leaf.reshape([count, rows / count, ...rest]);
  }, batch);
}

function tensors(values: unknown): Tensor[] {
  return tree.leaves(values).filter((leaf): leaf is Tensor => leaf instanceof Tensor);
}

const firstSlice = (values: unknown) => tree.map((leaf: Tensor) => lax.indexInDim(leaf, 0, 0, false), values);
const takeRow = (buffers: readonly Tensor[], row: Tensor) =>
  buffers.map((buffer) => lax.dynamicIndexInDim(buffer, row, 0, false));
const putRow = (buffers: readonly Tensor[], values: readonly Tensor[], row: Tensor) =>
  buffers.map((buffer, i) => lax.dynamicUpdateIndexInDim(buffer, at(values, i), row, 0));

/** Sums of narrow floats are kept in float32. */
const sumType = ({ dtype, shape }: TensorType): TensorType => ({
  dtype: isFloat(dtype) && dtype !== "float64" ? "float32" : dtype,
  shape,
});
const addTo = (sums: readonly Tensor[], values: readonly Tensor[]) =>
  sums.map((sum, i) => ops.add(sum, at(values, i).astype(sum.dtype)));

const same = (rows: readonly Tensor[]) => rows;
const onlyIf = (condition: Tensor, change: typeof same, rows: readonly Tensor[]) =>
  cond(condition, change, same, rows);
const storeMessage = (from: Direction, comes: Tensor, store: typeof same, rows: readonly Tensor[]) =>
  switchWithRole({ kind: "message", from }, comes, [same, store], rows);

/** The stages of a link between which messages come from a direction. */
function pairsFrom(way: (typeof neighbours)[number], { left, right, exchanges }: StageLink): Pair[] {
  const [from, to] = way === "fromLeft" ? [left, right] : [right, left];
  const isUsed = exchanges.some((pairs) => pairs.some((pair) => pair[0] === from));
  return isUsed ? [[from, to]] : [];
}

/** Runs the actions of one stage. */
class StageRunner {
  private readonly parts: { readonly [P in PartName]: PartPrograms };
  private readonly given: { readonly first: Given; readonly chunks: readonly Given[]; readonly last: Given };
  private readonly streamTypes: readonly TensorType[];
  /** The number of this stage. */
  private readonly stage: Tensor;

  constructor(
    functions: LocalFunctions,
    private readonly settings: LocalStep,
    private readonly weights: Weights,
    private readonly inputs: unknown,
    private readonly targets: unknown,
  ) {
    const chunks = range(settings.schedule.numChunks).map((chunk) =>
      tree.map(
        (leaf: Tensor) => lax.indexInDim(lax.indexInDim(leaf, chunk, 0, false), 0, 0, false),
        weights.stages,
      ),
    );
    const all = (structure: tree.Structure) => tree.numLeaves(structure);
    const first = new PartPrograms(
      functions.first,
      { weights: weights.first, stream: null, data: [firstSlice(inputs)] },
      "pipelineTrainStep: first",
      all,
    );
    this.streamTypes = first.outTypes;
    const stream = tree.unflatten(first.outStructure, this.streamTypes.map(ops.zeros));
    const stage = new PartPrograms(
      functions.stage,
      { weights: at(chunks, 0), stream, data: [] },
      "pipelineTrainStep: stage",
      all,
    );
    checkStream(this.streamTypes, stage.outTypes);
    const last = new PartPrograms(
      functions.last,
      { weights: weights.last, stream, data: [firstSlice(targets)] },
      "pipelineTrainStep: last",
      () => 1,
    );
    checkLoss(last, settings.hasAux);
    this.parts = { first, stage, last };
    this.stage = lax.axisIndex(settings.axisName);
    this.given = {
      first: first.give(tensors(weights.first)),
      chunks: chunks.map((own) => stage.give(tensors(own))),
      last: last.give(tensors(weights.last)),
    };
  }

  /** The state after all slots. */
  run(): State {
    const { table } = this.settings;
    const cells = np.array(
      table.slots.map((row) => row.map(cellNumbers)),
      "int32",
    );
    const form = at(at(table.slots, 0), 0);
    const exchanges = table.links.map(({ bySlot }) => np.array(bySlot, "int32"));
    const branches = [(state: State) => state, ...table.branches.map((branch) => this.action(branch))];
    const [end] = scanWithRole(
      table.role,
      (state: State, [slot, exchange]: readonly [Tensor, readonly Tensor[]]): [State, null] => {
        const numbers = lax.dynamicIndexInDim(slot, this.stage, 0, false);
        const cell = mapCell(form, (_, i) => lax.indexInDim(numbers, i, 0, false));
        const after = switchWithRole({ kind: "action" }, cell.branch, branches, state, cell);
        return [{ ...after, arrived: this.exchange(exchange, state, after, cell) }, null];
      },
      this.start(),
      [cells, exchanges],
    );
    return end;
  }

  private start(): State {
    const { rows, numArrived } = this.settings.table;
    const buffer =
      (count: number) =>
      ({ dtype, shape }: TensorType) =>
        ops.unset({ dtype, shape: [count, ...shape] });
    const sums = (values: readonly Tensor[]) => values.map(({ type }) => ops.zeros(sumType(type)));
    return {
      outbox: this.streamTypes.map(ops.zeros),
      arrived: this.streamTypes.map(buffer(numArrived)),
      kept: mapParts((part) =>
        mapLifetimes((lifetime) => {
          const count = rows[part][lifetime];
          return count === 0 ? [] : this.parts[part].keptTypes[lifetime].map(buffer(count));
        }),
      ),
      grads: {
        first: sums(this.given.first.weights),
        chunks: this.given.chunks.map(({ weights }) => sums(weights)),
        last: sums(this.given.last.weights),
      },
      sums: this.parts.last.outTypes.map((type) => ops.zeros(sumType(type))),
    };
  }

  /**
   * Sends results to the neighbours that read them and stores messages to this stage. Neighbours synchronise only after
   * slots in which one has a message for the other, and only the receiver waits.
   *
   * @param exchanges by link, which of its exchanges follows the slot
   */
  private exchange(
    exchanges: readonly Tensor[],
    before: State,
    after: State,
    cell: SlotCell<Tensor>,
  ): readonly Tensor[] {
    const { overlapSends, table, axisName } = this.settings;
    const store = (values: readonly Tensor[], row: Tensor) => (rows: readonly Tensor[]) =>
      putRow(rows, values, row);
    const comes = (way: Direction) => np.greaterEqual(cell[way], 0);
    const hasSelf = table.slots.some((row) => row.some(({ fromSelf }) => fromSelf >= 0));
    const kept = hasSelf
      ? storeMessage("fromSelf", comes("fromSelf"), store(after.outbox, cell.fromSelf), after.arrived)
      : after.arrived;
    if (overlapSends) {
      // Results of the slot before travel while this slot is computed.
      return neighbours.reduce((arrived, way) => {
        const pairs = table.links.flatMap((link) => pairsFrom(way, link));
        if (pairs.length === 0) return arrived;
        const message = lax.ppermute(before.outbox, axisName, pairs);
        return storeMessage(way, comes(way), store(message, cell[way]), arrived);
      }, kept);
    }
    return table.links.reduce((arrived, link, i) => {
      const handOver = (pairs: readonly Pair[]) => (rows: readonly Tensor[]) => {
        const message = ppermuteUnset(after.outbox, axisName, pairs);
        const reads = pairs.map(([, to]) => np.equal(this.stage, to)).reduce((a, b) => np.logicalOr(a, b));
        const row = np.where(np.equal(this.stage, link.right), cell.fromLeft, cell.fromRight);
        return onlyIf(reads, store(message, row), rows);
      };
      return switchWithRole(
        { kind: "link", link: i },
        at(exchanges, i),
        [same, ...link.exchanges.map(handOver)],
        arrived,
      );
    }, kept);
  }

  private action(branch: Branch): (state: State, cell: SlotCell<Tensor>) => State {
    const act = { F: this.forward, B: this.pull, I: this.pullInput, W: this.pullWeights }[branch.kind];
    return (state, cell) => act.call(this, branch, state, cell);
  }

  private forward({ chunk, isFirst, isLast }: Branch, state: State, cell: SlotCell<Tensor>): State {
    const { first, stage, last } = this.parts;
    const mine = (batch: unknown) => takeRow(tensors(batch), cell.microbatch);
    let { kept, sums, outbox } = state;
    const keep = (part: PartName, values: Omit<KeptValues, "postponed">) => {
      for (const lifetime of ["input", "weight"] as const)
        kept = written(kept, part, lifetime, values[lifetime], cell.kept[part][lifetime]);
    };
    let stream = isFirst ? [] : takeRow(state.arrived, cell.arrived);
    if (isFirst) {
      const made = first.forward(this.given.first, [], mine(this.inputs));
      keep("first", made.kept);
      stream = made.outs;
    }
    const worked = stage.forward(at(this.given.chunks, chunk), stream, []);
    keep("stage", worked.kept);
    if (isLast) {
      const ended = last.forward(this.given.last, worked.outs, mine(this.targets));
      keep("last", ended.kept);
      sums = addTo(sums, ended.outs);
    } else outbox = worked.outs;
    return { ...state, kept, sums, outbox };
  }

  /** What the forward pass of a microbatch kept. */
  private stored({ kept }: State, cell: SlotCell<Tensor>) {
    return (part: PartName) => ({
      input: takeRow(kept[part].input, cell.kept[part].input),
      weight: takeRow(kept[part].weight, cell.kept[part].weight),
    });
  }

  /** The cotangent of a microbatch's loss. */
  private share(): Tensor {
    const { dtype } = at(this.parts.last.outTypes, 0);
    return Tensor.scalar(1 / this.settings.schedule.numMicrobatches, dtype);
  }

  /** A whole backward pass, which postpones nothing. */
  private pull({ chunk, isFirst, isLast }: Branch, state: State, cell: SlotCell<Tensor>): State {
    const { first, stage, last } = this.parts;
    const stored = this.stored(state, cell);
    let { grads, outbox } = state;
    let cotangents = isLast ? [] : takeRow(state.arrived, cell.arrived);
    if (isLast) {
      const { stream, sums } = last.pull(this.given.last, stored("last"), [this.share()], grads.last);
      grads = { ...grads, last: sums };
      cotangents = stream;
    }
    const before = at(grads.chunks, chunk);
    const { stream, sums } = stage.pull(at(this.given.chunks, chunk), stored("stage"), cotangents, before);
    grads = { ...grads, chunks: grads.chunks.with(chunk, sums) };
    if (isFirst) {
      const pulled = first.pull(this.given.first, stored("first"), stream, grads.first);
      grads = { ...grads, first: pulled.sums };
    } else outbox = stream;
    return { ...state, grads, outbox };
  }

  private pullInput({ chunk, isFirst, isLast }: Branch, state: State, cell: SlotCell<Tensor>): State {
    const { first, stage, last } = this.parts;
    let { kept, outbox } = state;
    const stored = this.stored(state, cell);
    const postpone = (part: PartName, values: readonly Tensor[]) => {
      kept = written(kept, part, "postponed", values, cell.kept[part].postponed);
    };
    let cotangents = isLast ? [] : takeRow(state.arrived, cell.arrived);
    if (isLast) {
      const pulled = last.pullInput(this.given.last, stored("last"), [this.share()]);
      postpone("last", pulled.postponed);
      cotangents = pulled.stream;
    }
    const pulled = stage.pullInput(at(this.given.chunks, chunk), stored("stage"), cotangents);
    postpone("stage", pulled.postponed);
    if (isFirst) {
      postpone("first", first.pullInput(this.given.first, stored("first"), pulled.stream).postponed);
    } else outbox = pulled.stream;
    return { ...state, kept, outbox };
  }

  private pullWeights({ chunk, isFirst, isLast }: Branch, state: State, cell: SlotCell<Tensor>): State {
    const stored = (part: PartName) => ({
      weight: takeRow(state.kept[part].weight, cell.kept[part].weight),
      postponed: takeRow(state.kept[part].postponed, cell.kept[part].postponed),
    });
    const { grads } = state;
    const { first, stage, last } = this.parts;
    const before = at(grads.chunks, chunk);
    const after = stage.pullWeights(at(this.given.chunks, chunk), stored("stage"), before);
    return {
      ...state,
      grads: {
        first: isFirst ? first.pullWeights(this.given.first, stored("first"), grads.first) : grads.first,
        chunks: grads.chunks.with(chunk, after),
        last: isLast ? last.pullWeights(this.given.last, stored("last"), grads.last) : grads.last,
      },
    };
  }

  /** Loss and gradients: those of `first` and `last` are computed on one stage each, the others on their own stage. */
  results({ grads, sums }: State): [value: unknown, grads: Weights] {
    const { axisName, batchAxes, schedule } = this.settings;
    const averaged = (values: readonly Tensor[]) =>
      batchAxes.length > 0 ? lax.pmean(values, batchAxes) : values;
    const everywhere = (values: readonly Tensor[]) => averaged(lax.psum(values, axisName));
    const like = (values: unknown, results: readonly Tensor[]) =>
      tree.unflatten(
        tree.structure(values),
        results.map((result, i) => result.astype(at(tensors(values), i).dtype)),
      );
    const { last } = this.parts;
    const means = everywhere(sums).map((sum, i) =>
      sum.div(schedule.numMicrobatches).astype(at(last.outTypes, i).dtype),
    );
    const stages = averaged(
      this.given.chunks[0]?.weights.map((_, i) => {
        const stacked = np.stack(grads.chunks.map((own) => at(own, i)));
        return np.expandDims(stacked, 1);
      }) ?? [],
    );
    return [
      tree.unflatten(last.outStructure, means),
      {
        first: like(this.weights.first, everywhere(grads.first)),
        stages: like(this.weights.stages, stages),
        last: like(this.weights.last, everywhere(grads.last)),
      },
    ];
  }
}

function written(
  kept: Buffers,
  part: PartName,
  lifetime: Lifetime,
  values: readonly Tensor[],
  row: Tensor,
): Buffers {
  return { ...kept, [part]: { ...kept[part], [lifetime]: putRow(kept[part][lifetime], values, row) } };
}

function checkStream(before: readonly TensorType[], after: readonly TensorType[]): void {
  const wrong = before.findIndex((type, i) => !after[i] || !sameType(type, at(after, i)));
  if (wrong < 0 && before.length === after.length) return;
  const [want, got] = [before, after].map((types) => types.map(formatType).join(", "));
  throw new ShapeError(
    `[pipelineTrainStep] the stage turns ${want} into ${got}: every stage must keep shape and type, because the next one takes its result`,
  );
}

function checkLoss({ outTypes, outStructure }: PartPrograms, hasAux: boolean): void {
  const [loss] = outTypes;
  const isPair = outStructure.kind === "array" && outStructure.children.length === 2;
  if (loss && loss.shape.length === 0 && isFloat(loss.dtype) && (hasAux ? isPair : outTypes.length === 1))
    return;
  const got = tree.formatStructure(outStructure);
  throw new ShapeError(
    `[pipelineTrainStep] last must return ${hasAux ? "[loss, aux] with a loss that is one float" : "one float, the mean loss of the microbatch"}, it returned ${loss && outTypes.length === 1 ? formatType(loss) : got}`,
  );
}
