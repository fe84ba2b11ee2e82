/**
 * Fused kernels as machine code: the loops, rows, phases and sums of the WebAssembly kernels with wider vectors, and
 * every result with the same bits. What needs more than lanes of 32 bits that lie side by side stays WebAssembly.
 */

import { byteSize, type DType, isNarrowInteger } from "../../../ir/dtype.js";
import { at, range } from "../../../ir/shape.js";
import { kernelArgs, spillBytes } from "../../kernel/emit.js";
import { combineInstruction } from "../../kernel/lanes.js";
import { innerNodes, type KernelPlan } from "../../kernel/phases.js";
import type { Section } from "../../kernel/section.js";
import type { KernelStore } from "../../kernel/spec.js";
import type { AddressType } from "../../wasm/addresses.js";
import { ADDRESS_BYTES } from "../../wasm/addresses.js";
import { float32Bits } from "../../wasm/vectorProgram.js";
import type { Label } from "../code.js";
import {
  type Gpr,
  low32,
  type Mem,
  mem,
  r8,
  r9,
  r10,
  r12,
  r13,
  r14,
  r15,
  rax,
  rbp,
  rbx,
  rcx,
  rdi,
  rdx,
  rsi,
  rsp,
  type Vector,
} from "../x64/operands.js";
import { type Extent, kernelExtents } from "./kernelBounds.js";
import { combineVectors } from "./x64Combine.js";
import { SLOT_BYTES } from "./x64Frame.js";
import { X64InnerLoop } from "./x64InnerLoop.js";
import { KernelTools } from "./x64KernelTools.js";
import { hasCode, planLine, writeLine } from "./x64Line.js";
import { loadSplat, splat, storeOne } from "./x64Storage.js";

/** What machine code of kernels is made for. */
export interface KernelTarget {
  /** The widest vectors. */
  readonly bits: 256 | 512;
  /** How addresses are kept in the address table and in lists of arguments. */
  readonly addressType: AddressType;
}

/**
 * The record that a kernel's first argument points to: the address of the memory, its bytes, and a number that a kernel
 * sets to one more than the argument that would have left the memory; it has done nothing then.
 */
export const CONTEXT = { base: 0, end: 8, failed: 16, bytes: 24 };

/** Numbers that fit the immediate operands of instructions. */
const LARGEST = 2 ** 31 - 1;

/**
 * The code of `(context, table, args, from, to, part)`, or nothing for kernels that stay WebAssembly: addresses of the
 * context, the address table and the argument list; for a kernel that threads share also the first row of a part, the
 * row behind its last, and the part's number.
 */
export function writeKernel(
  plan: KernelPlan,
  isDivided: boolean,
  target: KernelTarget,
  listing?: string[],
): Uint8Array<ArrayBuffer> | undefined {
  const extents = kernelExtents(plan);
  return isSupported(plan, extents)
    ? new KernelWriter(plan, isDivided, target, extents, listing).write()
    : undefined;
}

function isSupported(plan: KernelPlan, extents: readonly Extent[]): boolean {
  const { spec, phases, last } = plan;
  const end = spec.dims.length - 1;
  const inner = innerNodes(spec);
  const isNear = (stride: number) => stride === 0 || stride === 1;
  const loads = spec.nodes.every((node, i) => {
    if (node.dtype === "float64" || isNarrowInteger(node.dtype)) return false;
    if (node.kind !== "load" || !at(inner, i)) return true;
    return isNear(at(node.access.strides, end)) && (node.index?.access.strides[end] ?? 0) === 0;
  });
  const isRowStore = ({ node, access }: KernelStore) =>
    !at(inner, node) && access.strides.every((stride, d) => d < spec.numRows || stride === 0);
  const stores = spec.stores.every((store) => {
    const { dtype } = at(spec.nodes, store.node);
    if (store.index || (store.combine !== undefined && byteSize(dtype) !== 4)) return false;
    return isRowStore(store) || at(store.access.strides, end) === 1;
  });
  const sections = [...phases.flatMap(({ row, inner: body }) => [row, body]), last];
  return (
    loads &&
    stores &&
    !spec.args.some((dtype) => dtype === "float64" || isNarrowInteger(dtype)) &&
    spec.fills.every(({ arg, value }) => value === 0 || byteSize(at(spec.args, arg)) !== 2) &&
    sections.every(({ program }) => hasCode(program)) &&
    extents.every(({ from, to }) => to - from <= LARGEST && -from <= LARGEST) &&
    spec.dims.every((size) => size <= LARGEST)
  );
}

const SAVED = [rbx, r12, r13, r14, r15];

class KernelWriter {
  private readonly tools: KernelTools;
  private readonly types: readonly DType[];
  /** Where the bounds and the number of the part are. */
  private readonly part: { readonly from: Mem; readonly to: Mem; readonly number: Mem };

  constructor(
    private readonly plan: KernelPlan,
    private readonly isDivided: boolean,
    private readonly target: KernelTarget,
    private readonly extents: readonly Extent[],
    listing?: string[],
  ) {
    this.types = kernelArgs(plan);
    this.tools = new KernelTools(plan, target.bits, this.types.length, listing);
    const { frame } = this.tools;
    this.part = { from: frame.word(), to: frame.word(), number: frame.word() };
  }

  /** Writes the function; how much stack it takes is known at its end, so that is where its beginning stands. */
  write(): Uint8Array<ArrayBuffer> {
    const { x, frame, pool } = this.tools;
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

  private body(done: Label): void {
    const { tools, plan } = this;
    const { x } = tools;
    if (this.isDivided) x.mov(this.part.from, rcx).mov(this.part.to, r8).mov(this.part.number, r9);
    this.types.forEach((_, arg) => {
      this.resolve(arg, done);
    });
    for (const fill of plan.spec.fills) this.fill(fill);
    this.rows(() => {
      for (const { row, inner } of plan.phases) {
        this.rowSection(row);
        if (inner.outputs.length > 0) new X64InnerLoop(tools, plan, inner).write();
      }
      this.rowSection(plan.last);
    });
  }

  /** Finds the address of an argument, and leaves when something of it is outside of the memory. */
  private resolve(arg: number, done: Label): void {
    const { x, bases } = this.tools;
    const [context, table, args] = [rdi, rsi, rdx];
    const isWide = this.target.addressType === "i64";
    const bytes = ADDRESS_BYTES[this.target.addressType];
    const at32 = (register: Gpr) => (isWide ? register : low32(register));
    const load = (to: Gpr, from: Mem) => (isWide ? x.cvttsd2si(to, from) : x.mov(low32(to), from));
    load(rax, mem(args, 2 * arg * bytes));
    load(rax, mem(table, 0, rax));
    load(r10, mem(args, (2 * arg + 1) * bytes));
    x.add(at32(rax), at32(r10));
    const scratch = arg - this.plan.spec.args.length;
    if (this.isDivided && scratch >= 0) {
      x.mov(r10, this.part.number)
        .imul(r10, r10, at(spillBytes(this.plan), scratch))
        .add(rax, r10);
    }
    const { from, to } = at(this.extents, arg);
    const [inside, outside] = [x.label(), x.label()];
    x.lea(r10, mem(rax, from)).cmp(r10, 0).j("l", outside);
    x.add(r10, to - from)
      .cmp(r10, mem(context, CONTEXT.end))
      .j("le", inside);
    x.place(outside)
      .mov(low32(rax), arg + 1)
      .mov(mem(context, CONTEXT.failed), rax)
      .jmp(done);
    x.place(inside).add(rax, mem(context, CONTEXT.base)).mov(at(bases, arg), rax);
  }

  private fill({ arg, count, value }: KernelPlan["spec"]["fills"][number]): void {
    const { x, bases } = this.tools;
    const dtype = at(this.types, arg);
    const bits = 8 * byteSize(dtype);
    const word = dtype === "float32" && value !== 0 ? float32Bits(value) : value;
    x.mov(rdi, at(bases, arg)).mov(low32(rcx), count);
    x.mov(low32(rax), word);
    x[bits === 8 ? "repStosb" : bits === 16 ? "repStosw" : "repStosd"]();
  }

  /** The loops over all rows, or over those of a part. */
  private rows(body: () => void): void {
    const { tools } = this;
    const { x } = tools;
    const dims = range(this.plan.spec.numRows);
    if (!this.isDivided) {
      tools.loops(dims, body);
      return;
    }
    const row = at(tools.counters, 0);
    x.mov(rax, this.part.from).mov(row, rax);
    const next = x.here();
    tools.loops(dims.slice(1), body);
    x.mov(rax, row).add(rax, 1).mov(row, rax).cmp(rax, this.part.to).j("l", next);
  }

  /** The code of a row outside of its loops, on one lane whose value all lanes have. */
  private rowSection(section: Section): void {
    if (section.outputs.length === 0) return;
    const { tools, plan } = this;
    const { nodes, numRows } = plan.spec;
    const line = planLine(section.program, 128, 1, 0, false);
    writeLine(tools.forSection(section), line, {
      input: (slot, _copy, to, temporary) => {
        const node = at(nodes, at(section.inputs, slot).node);
        if (node.kind === "load") {
          tools.address(node.access, byteSize(node.dtype), numRows, node.index);
          loadSplat({ ...tools.storage, temporary }, node.dtype, to, mem(rax));
        } else if (node.kind === "iota") {
          tools.iota(node, numRows);
          splat(tools.x, to);
        }
      },
      output: (index, _copy, value, temporary) => {
        const output = at(section.outputs, index);
        if (output.kind === "keep") {
          tools.keepRowValue(output.node, value);
        } else if (output.kind === "store") this.rowStore(output.store, value, temporary);
      },
    });
  }

  private rowStore(store: KernelStore, value: Vector, temporary: () => Vector): void {
    const { tools } = this;
    const { dtype } = at(this.plan.spec.nodes, store.node);
    const storage = { ...tools.storage, temporary };
    tools.address(store.access, byteSize(dtype), this.plan.spec.numRows);
    let stored = value;
    if (store.combine !== undefined) {
      const before = temporary();
      loadSplat(storage, dtype, before, mem(rax));
      stored = temporary();
      combineVectors(storage, combineInstruction(store.combine, dtype), stored, before, value);
    }
    storeOne(storage, dtype, mem(rax), stored);
  }
}
