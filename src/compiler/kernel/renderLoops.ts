import { at, range } from "../../ir/shape.js";
import type { Ports } from "../wasm/vectorProgram.js";
import type { Iota, Loop, LoopPlan, LoopStage, Reduce, SectionPlan, Store, Stream } from "./loopPlan.js";

/**
 * A vector of the current turn: its stage, its number in the turn, and the number of elements of the turn before it.
 */
export interface Position {
  readonly stage: LoopStage;
  readonly copy: number;
  readonly first: number;
}

/**
 * Writes loops as code. `renderLoops` calls the methods in the order in which the code runs.
 *
 * Sections other than those of a row are opened first; their streams stay valid until the next section is opened.
 *
 * @typeParam Value a vector that the code computes
 */
export interface LoopRenderer<Value> {
  /** Writes a loop around what `body` writes; the counter of the dim is the number of the iteration. */
  loop(loop: Loop, body: () => void): void;
  /** Makes room for what a section needs, and sets the partial results of its reductions to their identities. */
  open(section: SectionPlan): void;
  /** Finds the first element of every stream and iota of the open section at the running iteration of its loops. */
  start(section: SectionPlan): void;
  /** Moves a stream by its index, which is the same along the vectorised dim, and runs `body` if that is in range. */
  whereInRange(stream: Stream, body: () => void): void;
  /** Writes all turns of a stage, each running the program of the section on `stage.copies` vectors. */
  stage(section: SectionPlan, stage: LoopStage, ports: Ports<Value>): void;
  /** Loads a vector of a stream. */
  load(to: Value, stream: Stream, position: Position): void;
  /** Computes a vector of integers. */
  iota(to: Value, iota: Iota, position: Position): void;
  /** Stores a vector, combined with the old elements if the plan says so. */
  store(value: Value, store: Store, position: Position): void;
  /** Combines a vector with the partial results of its copy. */
  accumulate(value: Value, reduction: Reduce, position: Position): void;
  /** Combines two vectors of partial results, and leaves the result in the first. */
  join(reduction: Reduce, first: number, second: number): void;
  /** Combines the lanes of the first vector of partial results, and keeps the result as a value of the row. */
  finish(reduction: Reduce): void;
  /** Keeps the value that a node has in this row. */
  keep(value: Value, node: number): void;
}

/** Writes all loops of a kernel. */
export function renderLoops<Value>(plan: LoopPlan, renderer: LoopRenderer<Value>): void {
  nest(renderer, plan.loops, () => {
    for (const section of plan.sections) renderSection(section, renderer);
  });
}

function nest<Value>(renderer: LoopRenderer<Value>, loops: readonly Loop[], body: () => void): void {
  const [first, ...rest] = loops;
  if (first === undefined) body();
  else renderer.loop(first, () => nest(renderer, rest, body));
}

function renderSection<Value>(section: SectionPlan, renderer: LoopRenderer<Value>): void {
  const stages = () => {
    for (const stage of section.stages) renderer.stage(section, stage, portsOf(section, stage, renderer));
  };
  if (section.isRow) {
    stages();
    return;
  }
  const indexed = section.outputs.flatMap((output) =>
    output.kind === "store" && output.stream.index?.stream.step === 0 ? [output.stream] : [],
  );
  renderer.open(section);
  nest(renderer, section.loops, () => {
    renderer.start(section);
    inRange(renderer, indexed, stages);
  });
  for (const output of section.outputs) {
    if (output.kind !== "reduce") continue;
    for (let half = section.numPartials / 2; half >= 1; half /= 2) {
      for (const k of range(half)) renderer.join(output, k, k + half);
    }
    renderer.finish(output);
  }
}

/** Indices that are the same for the whole vectorised dim are looked up once before it. */
function inRange<Value>(renderer: LoopRenderer<Value>, streams: readonly Stream[], body: () => void): void {
  const [first, ...rest] = streams;
  if (first === undefined) body();
  else renderer.whereInRange(first, () => inRange(renderer, rest, body));
}

function portsOf<Value>(section: SectionPlan, stage: LoopStage, renderer: LoopRenderer<Value>): Ports<Value> {
  const position = (copy: number): Position => ({ stage, copy, first: copy * stage.lanes });
  return {
    input: (slot, copy, to) => {
      const input = at(section.inputs, slot);
      if (input.kind === "iota") renderer.iota(to, input, position(copy));
      else renderer.load(to, input, position(copy));
    },
    output: (index, copy, value) => {
      const output = at(section.outputs, index);
      if (output.kind === "store") renderer.store(value, output, position(copy));
      else if (output.kind === "reduce") renderer.accumulate(value, output, position(copy));
      else renderer.keep(value, output.node);
    },
  };
}
