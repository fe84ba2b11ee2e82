import { byteSize, type DType } from "../../ir/dtype.js";
import { at, range } from "../../ir/shape.js";
import {
  emitInterleaved,
  type HostImports,
  type PreparedProgram,
  prepareProgram,
} from "../wasm/emitInterleaved.js";
import type { FunctionBody, Local } from "../wasm/functionBody.js";
import { InnerLoop } from "./innerLoop.js";
import { combineInstruction } from "./lanes.js";
import { emitSplat, emitStoreOne, type LaneCount } from "./memory.js";
import type { KernelPlan } from "./phases.js";
import type { Section } from "./section.js";
import type { Access, Indirection, KernelNode, KernelStore } from "./spec.js";

/** The data types of a kernel's arguments, the scratch rows of its spilled values included. */
export function kernelArgs(plan: KernelPlan): DType[] {
  return [...plan.spec.args, ...plan.spills.map((node) => spillType(plan, node))];
}

/** The bytes of scratch that each spilled value needs. */
export function spillBytes(plan: KernelPlan): number[] {
  const { dims, numRows } = plan.spec;
  const row = dims.slice(numRows).reduce((n, d) => n * d, 1);
  return plan.spills.map((node) => row * byteSize(spillType(plan, node)));
}

function spillType(plan: KernelPlan, node: number): "float64" | "float32" {
  return at(plan.spec.nodes, node).dtype === "float64" ? "float64" : "float32";
}

/**
 * Writes the kernel's function body. Parameters are the address table and the argument list; a kernel that is
 * divided among threads also takes the first row of a part, the row behind its last, and the part's number.
 */
export function emitKernel(
  code: FunctionBody,
  plan: KernelPlan,
  host: HostImports,
  isDivided: boolean,
): void {
  new KernelEmitter(code, plan, host, isDivided).emit();
}

class KernelEmitter {
  private readonly lanes: LaneCount;
  private readonly bases: Local[];
  private readonly types: readonly DType[];
  private readonly counters: Local[];
  private readonly left: Local;
  private readonly rowValues = new Map<number, Local>();
  private readonly scratch = new Map<string, Local>();

  constructor(
    private readonly code: FunctionBody,
    private readonly plan: KernelPlan,
    private readonly host: HostImports,
    private readonly isDivided: boolean,
  ) {
    this.types = kernelArgs(plan);
    const { nodes } = plan.spec;
    this.lanes = nodes.some((n) => n.dtype === "float64") ? 2 : 4;
    this.bases = this.types.map(() => code.local("address"));
    this.counters = plan.spec.dims.map(() => code.local("i32"));
    this.left = code.local("i32");
  }

  emit(): void {
    const { code, plan } = this;
    const { spec } = plan;
    const [table, args] = [code.param(0), code.param(1)];
    this.bases.forEach((base, k) => {
      const at = 2 * k * code.addressBytes;
      code.get(args).loadAddress(at).get(table).op("address.add").loadAddress();
      code
        .get(args)
        .loadAddress(at + code.addressBytes)
        .op("address.add")
        .set(base);
    });
    if (this.isDivided) this.ownScratch();
    for (const { arg, count, value } of spec.fills) this.fill(arg, count, value);
    const prepared = plan.phases.map(({ row, inner }) => ({
      row: this.prepare(row),
      inner: this.prepare(inner),
    }));
    const last = this.prepare(plan.last);
    this.rows(() => {
      plan.phases.forEach(({ row, inner }, p) => {
        const programs = at(prepared, p);
        this.rowSection(row, programs.row);
        this.innerSection(inner, programs.inner);
      });
      this.rowSection(plan.last, last);
    });
  }

  /** Moves the spilled values of this part behind those of the parts before it. */
  private ownScratch(): void {
    const { code, plan } = this;
    const first = plan.spec.args.length;
    spillBytes(plan).forEach((bytes, i) => {
      const base = at(this.bases, first + i);
      code.get(code.param(4)).toAddress().address(bytes).op("address.mul");
      code.get(base).op("address.add").set(base);
    });
  }

  /** The loops over all rows, or over those of a part. */
  private rows(body: () => void): void {
    const { code } = this;
    const dims = range(this.plan.spec.numRows);
    if (!this.isDivided) {
      this.loops(dims, body);
      return;
    }
    const row = at(this.counters, 0);
    code.get(code.param(2)).set(row);
    code.loop((next) => {
      this.loops(dims.slice(1), body);
      code.get(row).i32(1).op("i32.add").tee(row).get(code.param(3)).op("i32.lt_s").brIf(next);
    });
  }

  private prepare(section: Section): PreparedProgram {
    const uniform = (slot: number) => this.rowValue(at(section.uniforms, slot));
    return prepareProgram(this.code, section.program, this.host, uniform);
  }

  private rowValue(node: number): Local {
    const known = this.rowValues.get(node);
    if (known !== undefined) return known;
    const local = this.code.local("v128");
    this.rowValues.set(node, local);
    return local;
  }

  private temporary(name: string, type: "i32" | "address" | "v128"): Local {
    const known = this.scratch.get(name);
    if (known !== undefined) return known;
    const local = this.code.local(type);
    this.scratch.set(name, local);
    return local;
  }

  /** Nested counting loops over some dims, the first outermost. */
  private loops(dims: readonly number[], body: () => void): void {
    const [first, ...rest] = dims;
    if (first === undefined) {
      body();
      return;
    }
    this.repeat(at(this.counters, first), at(this.plan.spec.dims, first), () => this.loops(rest, body));
  }

  /** Runs a body `count` ≥ 1 times with a counter from 0. */
  private repeat(counter: Local, count: number, body: () => void): void {
    const { code } = this;
    code.i32(0).set(counter);
    if (count === 1) {
      body();
      return;
    }
    code.loop((next) => {
      body();
      code.get(counter).i32(1).op("i32.add").tee(counter).i32(count).op("i32.lt_s").brIf(next);
    });
  }

  private fill(arg: number, count: number, value: number): void {
    const { code } = this;
    const dtype = at(this.types, arg);
    const bytes = byteSize(dtype);
    const base = at(this.bases, arg);
    if (value === 0) {
      code
        .get(base)
        .i32(0)
        .address(count * bytes)
        .memoryFill();
      return;
    }
    const pointer = this.temporary("fill", "address");
    code.get(base).set(pointer);
    this.repeat(this.left, count, () => {
      code.get(pointer);
      if (dtype === "float64") code.f64(value).memory("f64.store");
      else if (dtype === "float32") code.f32(value).memory("f32.store");
      else if (bytes === 4) code.i32(value).memory("i32.store");
      else code.i32(value).memory("i32.store8");
      code.advance(pointer, bytes);
    });
  }

  /** Pushes the address of an access at the current counters; the dims from `end` on count as 0. */
  private pushAddress(access: Access, bytes: number, end: number): void {
    const { code } = this;
    code.get(at(this.bases, access.arg));
    access.strides.slice(0, end).forEach((stride, d) => {
      if (stride === 0 || this.plan.spec.dims[d] === 1) return;
      code
        .get(at(this.counters, d))
        .toAddress()
        .address(stride * bytes)
        .op("address.mul")
        .op("address.add");
    });
  }

  /** Pushes `clamp(index) · stride` bytes, the index being read at the address on the stack. */
  private pushIndirect(index: Indirection, bytes: number): void {
    const { code } = this;
    const value = this.temporary("index", "i32");
    code.memory("i32.load").set(value);
    code.get(value).i32(0).get(value).i32(0).op("i32.gt_s").op("select").set(value);
    code
      .get(value)
      .i32(index.limit - 1)
      .get(value)
      .i32(index.limit - 1)
      .op("i32.lt_s")
      .op("select");
    code
      .toAddress()
      .address(index.stride * bytes)
      .op("address.mul");
  }

  private rowSection(section: Section, prepared: PreparedProgram): void {
    if (section.outputs.length === 0) return;
    const { code } = this;
    const { numRows } = this.plan.spec;
    emitInterleaved(code, prepared, 1, {
      input: (slot) => {
        const input = at(section.inputs, slot);
        const node = at(this.plan.spec.nodes, input.node);
        if (node.kind === "load") {
          this.pushAddress(node.access, byteSize(node.dtype), numRows);
          if (node.index) {
            this.pushAddress(node.index.access, 4, numRows);
            this.pushIndirect(node.index, byteSize(node.dtype));
            code.op("address.add");
          }
          emitSplat(code, node.dtype);
        } else if (node.kind === "iota") {
          this.pushIota(node, numRows);
          code.vector("i32x4.splat");
        }
      },
      output: (index, _copy, value) => {
        const output = at(section.outputs, index);
        if (output.kind === "keep") code.get(value).set(this.rowValue(output.node));
        else if (output.kind === "store") this.rowStore(output.store, value);
      },
    });
  }

  private rowStore(store: KernelStore, value: Local): void {
    const { code } = this;
    const { dtype } = at(this.plan.spec.nodes, store.node);
    const pointer = this.temporary("rowPointer", "address");
    this.pushAddress(store.access, byteSize(dtype), this.plan.spec.numRows);
    code.set(pointer);
    this.guarded(store, this.plan.spec.numRows, pointer, dtype, () =>
      this.combineAndStoreOne(store, pointer, dtype, value),
    );
  }

  /** Moves the pointer of an indexed store to where the index says and runs the body if that is in range. */
  private guarded(store: KernelStore, end: number, pointer: Local, dtype: DType, body: () => void): void {
    const { code } = this;
    const { index } = store;
    if (!index) {
      body();
      return;
    }
    const place = this.temporary("place", "i32");
    this.pushAddress(index.access, 4, end);
    code
      .memory("i32.load")
      .tee(place)
      .i32(index.limit)
      .op("i32.lt_u")
      .if(() => {
        code
          .get(place)
          .toAddress()
          .address(index.stride * byteSize(dtype))
          .op("address.mul")
          .get(pointer)
          .op("address.add")
          .set(pointer);
        body();
      });
  }

  private combineAndStoreOne(store: KernelStore, pointer: Local, dtype: DType, value: Local): void {
    const { code } = this;
    if (!store.combine) {
      emitStoreOne(code, dtype, pointer, value);
      return;
    }
    const sum = this.temporary("sum", "v128");
    code.get(pointer);
    emitSplat(code, dtype);
    code.get(value).vector(combineInstruction(store.combine, dtype)).set(sum);
    emitStoreOne(code, dtype, pointer, sum);
  }

  private pushIota(node: Extract<KernelNode, { kind: "iota" }>, end: number): void {
    const { code } = this;
    code.i32(0);
    node.coefficients.slice(0, end).forEach((c, d) => {
      if (c !== 0) code.get(at(this.counters, d)).i32(c).op("i32.mul").op("i32.add");
    });
  }

  private innerSection(section: Section, prepared: PreparedProgram): void {
    if (section.outputs.length === 0) return;
    new InnerLoop(section, prepared, this.code, this.plan, this.lanes, {
      loops: (dims, body) => this.loops(dims, body),
      repeat: (count, body) => this.repeat(at(this.counters, this.counters.length - 1), count, body),
      pushAddress: (access, bytes, end) => this.pushAddress(access, bytes, end),
      pushIndirect: (index, bytes) => this.pushIndirect(index, bytes),
      pushIota: (node, end) => this.pushIota(node, end),
      guarded: (store, end, pointer, dtype, body) => this.guarded(store, end, pointer, dtype, body),
      combineAndStoreOne: (store, pointer, dtype, value) =>
        this.combineAndStoreOne(store, pointer, dtype, value),
      temporary: (name, type) => this.temporary(name, type),
      rowValue: (node) => this.rowValue(node),
    }).emit();
  }
}
