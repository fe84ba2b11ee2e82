import { runCallback } from "../../src/compiler/kernel/callbackStep.js";
import { runHostStep } from "../../src/compiler/kernel/hostKernels.js";
import { kernelImports } from "../../src/compiler/kernel/kernelLibrary.js";
import {
  ALIGNMENT,
  type CollectiveSpec,
  type CompiledProgram,
  type GemmStep,
  type RaggedExchange,
  type RaggedGemm,
  READ_SLACK,
  type SlotAddress,
  type Step,
} from "../../src/compiler/steps.js";
import {
  allocateHost,
  byteSize,
  type DType,
  fromBfloat16Bits,
  fromFloat16Bits,
  type HostData,
  toBfloat16Bits,
  toFloat16Bits,
  viewHost,
} from "../../src/ir/dtype.js";
import { InternalError } from "../../src/ir/errors.js";
import { at, range, sizeOf } from "../../src/ir/shape.js";

/**
 * Runs a compiled program on simulated devices in this thread: the plainest runtime for a step list, which
 * tests compare with. Every device has its own arena in one memory.
 *
 * @param inputs for every input of the program one array per device
 * @returns for every output one array per device
 */
export function simulate(
  program: CompiledProgram,
  inputs: readonly (readonly HostData[])[],
  numDevices = 1,
): HostData[][] {
  const layout = new Layout();
  const constants = layout.reserve(program.constants.length);
  const devices = range(numDevices).map(() => ({
    table: layout.reserve(4 * program.slots.length),
    arena: layout.reserve(program.arenaBytes),
    inputs: program.inputs.map(({ bytes }) => layout.reserve(bytes)),
    outputs: program.outputs.map(({ bytes, inputIndex }) =>
      inputIndex === undefined ? layout.reserve(bytes) : 0,
    ),
  }));
  const pages = Math.ceil((layout.end + READ_SLACK) / 65536);
  const memory = new WebAssembly.Memory({ initial: pages, maximum: pages, shared: true });
  new Uint8Array(memory.buffer).set(program.constants, constants);
  const modules = program.modules.map(
    ({ bytes }) =>
      new WebAssembly.Instance(
        new WebAssembly.Module(bytes as Uint8Array<ArrayBuffer>),
        kernelImports(memory),
      ),
  );
  const runners = devices.map((device, position) => {
    device.inputs.forEach((address, i) => {
      const data = at(at(inputs, i), position);
      new Uint8Array(memory.buffer).set(
        new Uint8Array(data.buffer, data.byteOffset, data.byteLength),
        address,
      );
    });
    const table = new Uint32Array(memory.buffer, device.table, program.slots.length);
    program.slots.forEach((base, slot) => {
      if (base.kind === "arena") table[slot] = device.arena + base.offset;
      else if (base.kind === "constant") table[slot] = constants + base.offset;
      else if (base.kind === "input") table[slot] = at(device.inputs, base.index);
      else if (base.kind === "output") table[slot] = at(device.outputs, base.index);
    });
    return new Runner(program, modules, memory.buffer, device.table, table, constants, position);
  });
  runTogether(program, runners);
  return program.outputs.map(({ type, inputIndex }, i) =>
    devices.map((device) => {
      const address = inputIndex === undefined ? at(device.outputs, i) : at(device.inputs, inputIndex);
      return elementsAt(memory.buffer, type.dtype, address, sizeOf(type.shape)).slice();
    }),
  );
}

class Layout {
  end = ALIGNMENT;

  reserve(bytes: number): number {
    const address = this.end;
    this.end += Math.ceil((bytes + READ_SLACK) / ALIGNMENT) * ALIGNMENT;
    return address;
  }
}

function elementsAt(memory: ArrayBufferLike, dtype: DType, address: number, length: number): HostData {
  const bytes = new Uint8Array(memory, address, length * byteSize(dtype)).slice();
  return length === 0 ? allocateHost(dtype, 0) : viewHost(dtype, bytes.buffer);
}

/** Advances all devices from collective to collective; members of a group wait for each other, not for other groups. */
function runTogether(program: CompiledProgram, runners: readonly Runner[]): void {
  const running = runners.map((runner) => runner.run(program.steps));
  const waiting = running.map((device) => device.next());
  while (waiting.some((state) => !state.done)) {
    const ready = program.collectives.flatMap((spec, index) =>
      spec.groups
        .filter((group) =>
          group.every((device) => !at(waiting, device).done && at(waiting, device).value === index),
        )
        .map((group) => ({ spec, group })),
    );
    if (ready.length === 0) throw new InternalError("[simulate] the devices wait for different collectives");
    for (const { spec, group } of ready) {
      exchange(spec, group, runners);
      for (const device of group) waiting[device] = at(running, device).next();
    }
  }
}

function exchange(spec: CollectiveSpec, group: readonly number[], runners: readonly Runner[]): void {
  const { size, inner, outer, elements, kind } = spec;
  const sources = group.map((device) => at(runners, device).numbers(spec.dtype, spec.source, elements));
  const resultAt = (position: number): number[] => {
    const blocks = sources;
    switch (kind) {
      case "allReduce":
        return combineAll(spec, blocks);
      case "reduceScatter":
        return combineAll(
          spec,
          blocks.map((source) =>
            range(outer).flatMap((o) =>
              source.slice((o * size + position) * inner, (o * size + position + 1) * inner),
            ),
          ),
        );
      case "allGather":
        return range(outer).flatMap((o) =>
          blocks.flatMap((source) => source.slice(o * inner, (o + 1) * inner)),
        );
      case "allToAll":
        if (spec.ragged) return exchanged(spec, spec.ragged, at(group, position), blocks, runners);
        return blocks.flatMap((source) => source.slice(position * inner, (position + 1) * inner));
      case "permute": {
        const pair = spec.permutation.find(([, target]) => target === position);
        return pair ? at(blocks, pair[0]) : range(elements).map(() => 0);
      }
    }
  };
  const results = group.map((_, position) => resultAt(position));
  group.forEach((device, position) => {
    at(runners, device).write(spec.dtype, spec.target, at(results, position));
  });
}

/** What a member of a ragged exchange has afterwards: its own rows where its table names none. */
function exchanged(
  { dtype, target, elements }: CollectiveSpec,
  { receives, rows, targetRows, numBlocks }: RaggedExchange<SlotAddress>,
  device: number,
  sources: readonly number[][],
  runners: readonly Runner[],
): number[] {
  const [runner, width] = [at(runners, device), elements / rows];
  const result = runner.numbers(dtype, target, targetRows * width);
  const table = runner.numbers("int32", receives, 3 * sources.length * numBlocks);
  for (let block = 0; 3 * block < table.length; block++) {
    const [start = 0, size = 0, there = 0] = table.slice(3 * block);
    const taken = at(sources, Math.floor(block / numBlocks)).slice(there * width, (there + size) * width);
    result.splice(start * width, taken.length, ...taken);
  }
  return result;
}

function combineAll({ combine, dtype }: CollectiveSpec, blocks: readonly number[][]): number[] {
  const isInteger = dtype === "int32" || dtype === "uint32";
  return at(blocks, 0).map((first, i) =>
    blocks.slice(1).reduce(
      (total, block) => {
        const x = at(block, i);
        if (combine === "max") return Math.max(total, x);
        if (combine === "min") return Math.min(total, x);
        return isInteger ? (total + x) | 0 : dtype === "float64" ? total + x : Math.fround(total + x);
      },
      // A sum begins with 0.
      combine === "sum" && blocks.length > 1 ? first + 0 : first,
    ),
  );
}

/** One simulated device. */
class Runner {
  constructor(
    private readonly program: CompiledProgram,
    private readonly modules: readonly WebAssembly.Instance[],
    private readonly memory: ArrayBufferLike,
    private readonly tableAddress: number,
    private readonly table: Uint32Array,
    private readonly constants: number,
    private readonly position: number,
  ) {}

  private address({ slot, offset }: SlotAddress): number {
    return ((this.table[slot] ?? 0) + offset) >>> 0;
  }

  private int32(place: SlotAddress): number {
    return new Int32Array(this.memory, this.address(place), 1)[0] ?? 0;
  }

  numbers(dtype: DType, place: SlotAddress, length: number): number[] {
    const data = elementsAt(this.memory, dtype, this.address(place), length);
    if (dtype === "bfloat16") return Array.from(data, fromBfloat16Bits);
    return dtype === "float16" ? Array.from(data, fromFloat16Bits) : Array.from(data);
  }

  write(dtype: DType, place: SlotAddress, values: readonly number[]): void {
    const data = allocateHost(dtype, values.length);
    if (dtype === "bfloat16") data.set(values.map(toBfloat16Bits));
    else data.set(dtype === "float16" ? values.map(toFloat16Bits) : values);
    new Uint8Array(this.memory).set(new Uint8Array(data.buffer), this.address(place));
  }

  /** Runs steps; stops at the end of every collective with its index. */
  *run(steps: readonly Step[]): Generator<number, void, void> {
    for (const step of steps) {
      switch (step.op) {
        case "kernel": {
          const module = at(this.program.modules, step.module);
          const kernel = at(this.modules, step.module).exports[at(module.exports, step.kernel)];
          if (typeof kernel !== "function") throw new InternalError("[simulate] a kernel is missing");
          kernel(this.tableAddress, this.constants + step.args, 0, step.rows, 0);
          break;
        }
        case "gemm":
          this.gemm(step);
          break;
        case "copy": {
          const [from, to] = [this.address(step.source), this.address(step.target)];
          new Uint8Array(this.memory).copyWithin(to, from, from + step.bytes);
          break;
        }
        case "host":
          runHostStep(step, new Uint32Array(this.memory, this.tableAddress), this.memory);
          break;
        case "callback":
          if (at(step.calls, this.position)) {
            const addresses = step.places.map((place) => this.address(place));
            runCallback(at(this.program.callbacks, step.callback), step, this.memory, addresses);
          } else {
            for (const place of step.places.slice(step.numOperands)) {
              new Uint8Array(this.memory, this.address(place), place.bytes).fill(0);
            }
          }
          break;
        case "address": {
          const start = this.address(step.from);
          this.table[step.slot] = step.terms.reduce(
            (sum, { index, max, stride }) => sum + Math.min(Math.max(this.int32(index), 0), max) * stride,
            start,
          );
          break;
        }
        case "axisIndex":
          this.write("int32", step.target, [at(step.positions, this.position)]);
          break;
        case "loop":
          for (const { slot, from } of step.sets) this.table[slot] = this.address(from);
          for (let i = 0; i < step.count; i++) {
            yield* this.run(step.body);
            for (const { slot, stride } of step.advances) this.table[slot] = (this.table[slot] ?? 0) + stride;
            this.swap(step.swaps);
          }
          break;
        case "while":
          for (const { slot, from } of step.sets) this.table[slot] = this.address(from);
          for (;;) {
            yield* this.run(step.condition);
            if (!new Uint8Array(this.memory)[this.address(step.predicate)]) break;
            yield* this.run(step.body);
            this.swap(step.swaps);
          }
          break;
        case "cond": {
          const last = step.branches.length - 1;
          yield* this.run(at(step.branches, Math.min(Math.max(this.int32(step.index), 0), last)));
          break;
        }
        case "start":
          break;
        case "done":
          yield step.collective;
          break;
      }
    }
  }

  private swap(swaps: readonly (readonly [number, number])[]): void {
    for (const [a, b] of swaps) {
      const kept = this.table[a] ?? 0;
      this.table[a] = this.table[b] ?? 0;
      this.table[b] = kept;
    }
  }

  private gemm(step: GemmStep): void {
    const visit = (d: number, a: number, b: number, c: number, index: number): void => {
      const batch = step.batch[d];
      if (!batch) {
        if (step.ragged) this.groups(step, step.ragged, a, b, c, index);
        else this.product(step, a, b, c);
        return;
      }
      for (let i = 0; i < batch.count; i++) {
        const inner = index * batch.count + i;
        visit(d + 1, a + i * batch.strideA, b + i * batch.strideB, c + i * batch.strideC, inner);
      }
    };
    visit(0, this.address(step.a), this.address(step.b), this.address(step.c), 0);
  }

  /** Products of groups of rows; those after the last group are a product of no terms. */
  private groups(
    step: GemmStep,
    { dim, groups, sizes, stride }: RaggedGemm<SlotAddress>,
    a: number,
    b: number,
    c: number,
    index: number,
  ): void {
    const { lda, ldb, ldc, transposeA, transposeB } = step;
    const [bytes, bytesC] = [byteSize(step.dtype), step.dtype === "float64" ? 8 : 4];
    const counts = new Int32Array(this.memory, this.address(sizes), groups * (index + 1)).slice(
      groups * index,
    );
    let first = 0;
    counts.forEach((size, group) => {
      const count = Math.min(Math.max(size, 0), step[dim] - first);
      const isRows = dim === "m";
      const stepA = first * (transposeA === isRows ? 1 : lda) * bytes;
      const atB = isRows ? group * stride : first * (transposeB ? 1 : ldb) * bytes;
      const atC = isRows ? first * ldc * bytesC : group * stride;
      this.product({ ...step, [dim]: count }, a + stepA, b + atB, c + atC);
      first += count;
    });
    if (dim === "m") this.product({ ...step, m: step.m - first, k: 0 }, a, b, c + first * ldc * bytesC);
  }

  private product(step: GemmStep, a: number, b: number, c: number): void {
    const { m, n, k, lda, ldb, ldc, transposeA, transposeB, alpha, beta } = step;
    const data = step.dtype === "float64" ? new Float64Array(this.memory) : new Float32Array(this.memory);
    const halves = new Uint16Array(this.memory);
    const factor = (at: number) =>
      step.dtype === "bfloat16" ? fromBfloat16Bits(halves[at] ?? 0) : (data[at] ?? 0);
    const size = byteSize(step.dtype);
    const [a0, b0, c0] = [a / size, b / size, c / data.BYTES_PER_ELEMENT];
    for (let i = 0; i < m; i++) {
      for (let j = 0; j < n; j++) {
        let sum = 0;
        for (let l = 0; l < k; l++) {
          const x = factor(a0 + (transposeA ? l * lda + i : i * lda + l));
          sum += x * factor(b0 + (transposeB ? j * ldb + l : l * ldb + j));
        }
        const at = c0 + i * ldc + j;
        data[at] = alpha * sum + (beta === 0 ? 0 : beta * (data[at] ?? 0));
      }
    }
  }
}
