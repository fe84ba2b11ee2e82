import { opFacts } from "../../ir/opFacts.js";
import type { Atom, Eqn, Var } from "../../ir/program.js";
import { at, bytesOfAll, entriesOf, range } from "../../ir/shape.js";
import {
  type AttentionArgument,
  type AttentionCode,
  type AttentionKernel,
  type HeadStrides,
  isWithHeads,
} from "../attention/attentionKernel.js";
import { attentionTile } from "../attention/attentionTile.js";
import { type Buffer, refOf, type View } from "../plan/planBuffers.js";
import type { LoweringFrame } from "./frame.js";

const forward: readonly AttentionArgument[] = ["query", "key", "value"];
const backward: readonly AttentionArgument[] = [
  ...forward,
  ...(["logSums", "mixedCotangent", "mixed"] as const),
];

/** Largest distance, in elements, that a kernel can step over. */
const MAX_DISTANCE = 2 ** 29;

/** Whether a kernel can step over heads that lie like this: features are adjacent. */
function isSteppable({ strides }: View): boolean {
  return strides.every((stride) => stride >= 0 && stride < MAX_DISTANCE) && at(strides, 3) === 1;
}

/** Where heads lie: as they are if features are adjacent, otherwise copied. */
function headsOf(frame: LoweringFrame, atom: Atom): View {
  const view = frame.view(atom);
  return isSteppable(view) ? view : frame.dense(atom);
}

/** Where a result goes: to its block of a concatenation, such as that of the cotangents of all three, if it can. */
function placeFor(frame: LoweringFrame, name: AttentionArgument, out: Var): View {
  if (!isWithHeads(name) || frame.compilation.features.gpu) return frame.temporary(out);
  const target = frame.target(out);
  return isSteppable(target) ? target : frame.temporary(out);
}

function stridesOf({ strides }: View): HeadStrides {
  const [batch, row, head] = entriesOf(strides, 4);
  return { batch: 4 * batch, row: 4 * row, head: 4 * head };
}

/** What emits an attention, or its cotangents, as one kernel. */
export type LowerAttention = typeof lowerAttention;

/** How attention is one kernel: what lowers it, and the code that it becomes. */
export interface AttentionSteps {
  readonly lower: LowerAttention;
  readonly code: AttentionCode;
}

/** Attention as one kernel with some code. */
export function attentionAs(code: AttentionCode): AttentionSteps {
  return { lower: lowerAttention, code };
}

function lowerAttention(frame: LoweringFrame, eqn: Eqn<"attention"> | Eqn<"attentionBackward">): void {
  const [names, results]: [readonly AttentionArgument[], readonly AttentionArgument[]] =
    eqn.op === "attention"
      ? [forward, ["mixed", "logSums"]]
      : [
          [...backward, ...(eqn.ins.length > backward.length ? (["logSumsCotangent"] as const) : [])],
          ["queryCotangent", "keyCotangent", "valueCotangent"],
        ];
  const args = [...names, ...results];
  const views = [
    ...names.map((name, i) => (isWithHeads(name) ? headsOf : dense)(frame, at(eqn.ins, i))),
    ...eqn.outs.map((out, i) => placeFor(frame, at(results, i), out)),
  ];
  const [batch, length, heads, headSize] = entriesOf(at(eqn.ins, 0).type.shape, 4);
  const [, keyLength, keyHeads] = entriesOf(at(eqn.ins, 1).type.shape, 4);
  const { scale, causal, window: [before, after] = [-1, -1] } = eqn.params;
  const withHeads = args.flatMap((name, i) =>
    isWithHeads(name) ? [[name, stridesOf(at(views, i))] as const] : [],
  );
  const plan: AttentionKernel = {
    kind: "attention",
    ...{ batch, length, heads, keyLength, keyHeads, headSize, scale },
    // No query is further from a key than this.
    before: before >= length ? -1 : before,
    ahead: causal ? 0 : after >= keyLength ? -1 : after,
    args,
    strides: Object.fromEntries(withHeads),
    tile: attentionTile(frame.compilation.features, frame.compilation.vectorBits),
  };
  emit(frame, eqn, plan, views, names.length);
  frame.defineAll(eqn.outs, views.slice(names.length));
}

const dense = (frame: LoweringFrame, atom: Atom): View => frame.dense(atom);

function emit(
  frame: LoweringFrame,
  eqn: Eqn<"attention"> | Eqn<"attentionBackward">,
  plan: AttentionKernel,
  views: readonly View[],
  numOperands: number,
): void {
  const { compilation } = frame;
  const { index, rows, spillBytes } = compilation.library.addAttention(plan);
  const scratch: readonly Buffer[] = spillBytes.map((bytes) =>
    compilation.buffer(bytes, { kind: "temporary" }, frame.depth),
  );
  const bytes = bytesOfAll([...eqn.ins, ...eqn.outs]);
  const flops = eqn.op === "attention" ? opFacts.attention.flops(eqn) : opFacts.attentionBackward.flops(eqn);
  const last = views.length;
  frame.steps.push({
    op: "kernel",
    kernel: index,
    rows,
    args: [...views.map(refOf), ...scratch.map((buffer) => ({ buffer, offset: 0 }))],
    reads: [...range(numOperands), last],
    writes: [...range(views.length - numOperands).map((i) => numOperands + i), last],
    aliases: [],
    info: compilation.info([eqn.op], eqn.source, flops, bytes),
  });
}
