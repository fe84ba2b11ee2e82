/**
 * Fused kernels as machine code: the plans of the WebAssembly kernels with wider vectors, and every result with the
 * same bits. Kernels that need lanes other than 32 bits, or elements that are not adjacent, stay WebAssembly.
 */

import { byteSize, type DType, isNarrowInteger } from "../../../ir/dtype.js";
import { at } from "../../../ir/shape.js";
import { type InputPlan, type LoopPlan, planLoops } from "../../kernel/loopPlan.js";
import type { KernelPlan } from "../../kernel/phases.js";
import { renderLoops } from "../../kernel/renderLoops.js";
import type { AddressType } from "../../wasm/addresses.js";
import { float32Bits } from "../../wasm/vectorProgram.js";
import type { Label } from "../code.js";
import { gpr, low32, mem } from "../x64/operands.js";
import { type Extent, kernelExtents } from "./kernelBounds.js";
import { resolveArgument } from "./x64Arguments.js";
import { SLOT_BYTES } from "./x64Frame.js";
import { hasCode } from "./x64Line.js";
import { vectorTarget, X64Renderer } from "./x64Renderer.js";

const { rax, rcx, rbx, rsp, rbp, rdi, r8, r9, r12, r13, r14, r15 } = gpr;

/** The target of machine code for kernels. */
export interface KernelTarget {
  /** Width of the widest vectors. */
  readonly bits: 256 | 512;
  /** Type of the addresses in the address table and in argument lists. */
  readonly addressType: AddressType;
}

/** Largest number that fits the immediate operands of instructions. */
const LARGEST = 2 ** 31 - 1;

/**
 * The code of `(context, table, args, from, to, part)`, or undefined for kernels that stay WebAssembly: addresses of
 * the context, the address table and the argument list; for a kernel that threads share also the first row of a part,
 * the row after its last, and the part's number.
 */
export function writeKernel(
  plan: KernelPlan,
  isDivided: boolean,
  target: KernelTarget,
  listing?: string[],
): Uint8Array<ArrayBuffer> | undefined {
  const extents = kernelExtents(plan);
  const loops = planLoops(plan, isDivided, vectorTarget(target.bits));
  return isSupported(plan, loops, extents)
    ? new KernelWriter(loops, target, extents, listing).write()
    : undefined;
}

function isSupported(plan: KernelPlan, { sections }: LoopPlan, extents: readonly Extent[]): boolean {
  const { spec } = plan;
  const isWord = (dtype: DType) => dtype !== "float64" && !isNarrowInteger(dtype);
  const isLoad = (input: InputPlan) =>
    input.kind === "iota" || (isNear(input.step) && (input.index?.stream.step ?? 0) === 0);
  const isNear = (step: number) => step === 0 || step === 1;
  return (
    [...spec.args, ...spec.nodes.map(({ dtype }) => dtype)].every(isWord) &&
    sections.every(
      ({ program, inputs, outputs, isRow }) =>
        hasCode(program) &&
        inputs.every(isLoad) &&
        outputs.every((output) => {
          if (output.kind !== "store") return true;
          const { index, step, dtype } = output.stream;
          if (index || (output.combine !== undefined && byteSize(dtype) !== 4)) return false;
          return isRow || step === 1;
        }),
    ) &&
    spec.fills.every(({ arg, value }) => value === 0 || byteSize(at(spec.args, arg)) !== 2) &&
    extents.every(({ from, to }) => to - from <= LARGEST && -from <= LARGEST) &&
    spec.dims.every((size) => size <= LARGEST)
  );
}

const SAVED = [rbx, r12, r13, r14, r15];

/** Writes the function around the loops: its frame, the addresses of its arguments, and their checks. */
class KernelWriter {
  private readonly renderer: X64Renderer;

  constructor(
    private readonly plan: LoopPlan,
    private readonly target: KernelTarget,
    private readonly extents: readonly Extent[],
    listing?: string[],
  ) {
    this.renderer = new X64Renderer(plan, target.bits, listing);
  }

  /** Writes the function; its stack space is known at the end, so that is where the prologue is. */
  write(): Uint8Array<ArrayBuffer> {
    const { x, frame, pool } = this.renderer;
    const [begin, body, done] = [x.label(), x.label(), x.label()];
    x.jmp(begin).place(body);
    this.body(done);
    x.place(done)
      .vzeroupper()
      .lea(rsp, mem(rbp, -8 * SAVED.length));
    for (const register of SAVED.toReversed()) x.pop(register);
    x.pop(rbp).ret();
    x.place(begin).push(rbp).mov(rbp, rsp);
    for (const register of SAVED) x.push(register);
    x.sub(rsp, frame.bytes + SLOT_BYTES)
      .and(rsp, -SLOT_BYTES)
      .jmp(body);
    pool.write();
    return x.finish();
  }

  private get isDivided(): boolean {
    return this.plan.loops[0]?.isDivided ?? false;
  }

  private body(done: Label): void {
    const { x, part } = this.renderer;
    if (this.isDivided) x.mov(part.from, rcx).mov(part.to, r8).mov(part.number, r9);
    this.plan.args.forEach((_, arg) => {
      this.resolve(arg, done);
    });
    for (const fill of this.plan.fills) this.fill(fill);
    renderLoops(this.plan, this.renderer);
  }

  private resolve(index: number, done: Label): void {
    const { x, bases, part } = this.renderer;
    const bytes = this.plan.scratch[index - (this.plan.args.length - this.plan.scratch.length)];
    const own = this.isDivided && bytes !== undefined ? { number: part.number, bytes } : undefined;
    const place = { index, extent: at(this.extents, index), part: own };
    resolveArgument(x, this.target.addressType, place, at(bases, index), done);
  }

  private fill({ arg, count, value }: LoopPlan["fills"][number]): void {
    const { x, bases, part } = this.renderer;
    const dtype = at(this.plan.args, arg);
    const bits = 8 * byteSize(dtype);
    const word = dtype === "float32" && value !== 0 ? float32Bits(value) : value;
    const [divided] = this.plan.loops;
    x.mov(rdi, at(bases, arg));
    if (divided?.isDivided) {
      const share = count / divided.count;
      x.mov(rax, part.from)
        .imul(rax, rax, (share * bits) / 8)
        .add(rdi, rax);
      x.mov(rcx, part.to).sub(rcx, part.from).imul(rcx, rcx, share);
    } else x.mov(low32(rcx), count);
    x.mov(low32(rax), word);
    x[bits === 8 ? "repStosb" : bits === 16 ? "repStosw" : "repStosd"]();
  }
}
