import { byteSize, type DType, isFloat, isUnsigned } from "../../ir/dtype.js";
import { at, range } from "../../ir/shape.js";
import { combineInstruction } from "../kernel/lanes.js";
import type { HostKernel } from "../steps.js";
import { combine, type ShaderRegister, WgslWriter } from "./registers.js";
import {
  declarations,
  param,
  ShaderArguments,
  shaderCode,
  threadNumber,
  type WgslShader,
  WORDS_PER_ARG,
} from "./shaderMemory.js";
import type { ShaderSlabs } from "./shaderSlabs.js";

/** Shaders of the steps that are not kernels or products. */

const GROUP = 64;

/** The shader of a step that CPUs do in JavaScript. @param slabs those of the operands, then of the results */
export function hostShader(kernel: HostKernel, slabs: ShaderSlabs): WgslShader {
  switch (kernel.kind) {
    case "sort":
      return sortShader(kernel, slabs);
    case "argmax":
    case "argmin":
      return extremeShader(kernel, slabs);
    case "cumsum":
    case "cumsumReverse":
      return cumulativeShader(kernel, slabs);
  }
}

/** A value as one whose order as an unsigned integer is that of the sort: −0 is 0, NaN comes last. */
function sortKey(w: WgslWriter, dtype: DType, value: ShaderRegister): string {
  if (dtype === "bool") return w.let(`select(0u, 1u, ${value.flag})`);
  if (!isFloat(dtype)) return isUnsigned(dtype) ? w.bits(value) : w.let(`${w.bits(value)} ^ 0x80000000u`);
  // Bits of 16-bit floats order as those of float32 do, once they are shifted to the sign's place.
  const u = dtype === "float32" ? w.bits(value) : w.let(`${w.bits(value)} << 16u`);
  const magnitude = w.let(`${u} & 0x7fffffffu`);
  const most = dtype === "float16" ? "0x7c000000u" : "0x7f800000u";
  const ordered = `select(${u} | 0x80000000u, ~${u}, ${u} >= 0x80000000u)`;
  return w.let(
    `select(select(${ordered}, 0x80000000u, ${magnitude} == 0u), 0xffffffffu, ${magnitude} > ${most})`,
  );
}

/** Every element counts those that come before it, which is its place: stable, and without passes over memory. */
function sortShader(kernel: HostKernel & { readonly kind: "sort" }, slabs: ShaderSlabs): WgslShader {
  const { dtypes, numKeys, outer, n, inner } = kernel;
  const total = outer * n * inner;
  const w = new WgslWriter();
  const args = new ShaderArguments(
    [...dtypes, ...dtypes],
    slabs,
    range(dtypes.length).map((i) => dtypes.length + i),
  );
  w.line(`let id = ${threadNumber(GROUP)};`);
  w.line(`if (id >= ${total}u) { return; }`);
  args.open(w);
  w.line(`let own = (id / ${inner}u) % ${n}u;`);
  w.line(`let start = id - own * ${inner}u;`);
  const keyAt = (element: string) =>
    range(numKeys).map((i) => sortKey(w, at(dtypes, i), args.load(w, i, element)));
  const keys = keyAt("id");
  w.line("var place = 0u;");
  w.block(`for (var k = 0u; k < ${n}u; k++)`, () => {
    const others = keyAt(`start + k * ${inner}u`);
    // Equal elements keep their order.
    const isBefore = others.reduceRight(
      (rest, other, i) => `(${other} < ${at(keys, i)} || (${other} == ${at(keys, i)} && ${rest}))`,
      "k < own",
    );
    w.line(`if ${isBefore} { place++; }`);
  });
  dtypes.forEach((_, i) => {
    args.store(w, dtypes.length + i, `start + place * ${inner}u`, args.load(w, i, "id"));
  });
  return { code: shaderCode(args.declarations(), w, GROUP), workgroups: Math.ceil(total / GROUP) };
}

type Along = HostKernel & { readonly kind: "argmax" | "argmin" | "cumsum" | "cumsumReverse" };

/** Each thread of a workgroup finds the first extreme of its share of the elements, then the workgroup that of all. */
function extremeShader({ kind, dtype, outer, n, inner }: Along, slabs: ShaderSlabs): WgslShader {
  const w = new WgslWriter();
  const args = new ShaderArguments([dtype, "int32"], slabs, [1]);
  const total = outer * inner;
  w.line("let id = workgroup_id.x + workgroup_id.y * num_workgroups.x;");
  w.line("let y = local_invocation_index;");
  args.open(w);
  w.line(`let start = (id / ${inner}u) * ${n * inner}u + id % ${inner}u;`);
  w.line("var best_key = 0u;");
  w.line("var best = 0xffffffffu;");
  w.block(`for (var k = select(${n}u, y, id < ${total}u); k < ${n}u; k += ${GROUP}u)`, () => {
    const key = sortKey(w, dtype, args.load(w, 0, `start + k * ${inner}u`));
    // NaN has the largest key, and counts as the extreme for both.
    const rank =
      kind === "argmax" || !isFloat(dtype) ? key : w.let(`select(~${key}, ${key}, ${key} == 0xffffffffu)`);
    const ordered = kind === "argmin" && !isFloat(dtype) ? w.let(`~${rank}`) : rank;
    w.line(`if (best == 0xffffffffu || ${ordered} > best_key) { best = k; best_key = ${ordered}; }`);
  });
  w.line("keys[y] = best_key;");
  w.line("places[y] = best;");
  w.line("workgroupBarrier();");
  w.block(`for (var half = ${GROUP / 2}u; half > 0u; half >>= 1u)`, () => {
    w.block("if (y < half)", () => {
      w.line("let other = places[y + half];");
      w.line("let key = keys[y + half];");
      w.line(
        "let isBetter = other != 0xffffffffu && (places[y] == 0xffffffffu || key > keys[y] || (key == keys[y] && other < places[y]));",
      );
      w.line("if (isBetter) { keys[y] = key; places[y] = other; }");
    });
    w.line("workgroupBarrier();");
  });
  w.block(`if (y == 0u && id < ${total}u)`, () => args.store(w, 1, "id", { bits: "places[0]" }));
  const shared = `\nvar<workgroup> keys: array<u32, ${GROUP}>;\nvar<workgroup> places: array<u32, ${GROUP}>;`;
  const builtins = ["workgroup_id", "num_workgroups", "local_invocation_index"];
  return { code: shaderCode(args.declarations() + shared, w, GROUP, builtins), workgroups: total };
}

/** Each thread of a workgroup adds up one piece; the sums of the pieces before it are where it starts again. */
function cumulativeShader({ kind, dtype, outer, n, inner }: Along, slabs: ShaderSlabs): WgslShader {
  const w = new WgslWriter();
  const args = new ShaderArguments([dtype, dtype], slabs, [1]);
  const total = outer * inner;
  const add = combineInstruction("sum", dtype);
  const piece = Math.ceil(n / GROUP);
  w.line("let id = workgroup_id.x + workgroup_id.y * num_workgroups.x;");
  w.line("let y = local_invocation_index;");
  args.open(w);
  w.line(`let start = (id / ${inner}u) * ${n * inner}u + id % ${inner}u;`);
  w.line(`let first = select(${n}u, min(y * ${piece}u, ${n}u), id < ${total}u);`);
  w.line(`let end = min(first + ${piece}u, ${n}u);`);
  const element = `start + ${kind === "cumsum" ? "k" : `(${n - 1}u - k)`} * ${inner}u`;
  const walk = (visit: (sum: string, element: string) => void, from: string) => {
    const sum = w.name();
    w.line(`var ${sum} = ${from};`);
    w.block("for (var k = first; k < end; k++)", () => {
      const place = w.let(element);
      w.line(`${sum} = ${w.bits(combine(w, add, { bits: sum }, args.load(w, 0, place)))};`);
      visit(sum, place);
    });
    return sum;
  };
  w.line(`sums[y] = ${walk(() => {}, "0u")};`);
  w.line("workgroupBarrier();");
  w.line("var before = 0u;");
  w.block("for (var j = 0u; j < y; j++)", () => {
    w.line(`before = ${w.bits(combine(w, add, { bits: "before" }, { bits: w.let("sums[j]") }))};`);
  });
  walk((sum, place) => args.store(w, 1, place, { bits: sum }), "before");
  const shared = `\nvar<workgroup> sums: array<u32, ${GROUP}>;`;
  const builtins = ["workgroup_id", "num_workgroups", "local_invocation_index"];
  return { code: shaderCode(args.declarations() + shared, w, GROUP, builtins), workgroups: total };
}

/** Words that a thread copies. */
const WORDS_PER_THREAD = 4;

/** A copy of `bytes` bytes: of whole words where both places are known to begin at one, else byte by byte. */
export function copyShader(bytes: number, isAligned: boolean, slabs: ShaderSlabs): WgslShader {
  const w = new WgslWriter();
  const dtype = isAligned ? "uint32" : "uint8";
  const count = bytes / byteSize(dtype);
  const args = new ShaderArguments([dtype, dtype], slabs, [1]);
  const threads = Math.ceil(count / WORDS_PER_THREAD);
  w.line(`let id = ${threadNumber(GROUP)};`);
  args.open(w);
  const stride = GROUP * Math.ceil(threads / GROUP);
  for (const i of range(WORDS_PER_THREAD)) {
    const element = w.let(`id + ${i * stride}u`);
    w.block(`if (id < ${stride}u && ${element} < ${count}u)`, () =>
      args.store(w, 1, element, args.load(w, 0, element)),
    );
  }
  return { code: shaderCode(args.declarations(), w, GROUP), workgroups: Math.ceil(threads / GROUP) };
}

/** What happens to a slot of the address table. */
export const TABLE_OP = { set: 0, advance: 1, swap: 2 } as const;

/** Words of each change: what happens, the slot, another slot, a number of bytes. */
export const WORDS_PER_CHANGE = 4;

/** Changes slots of the address table, one after the other. */
export function tableShader(numChanges: number): WgslShader {
  const w = new WgslWriter();
  w.line("if (global_invocation_id.x > 0u || num_workgroups.x == 0u) { return; }");
  w.block(`for (var i = 0u; i < ${numChanges}u; i++)`, () => {
    w.line("let change = params[i];");
    w.line("let slot = change[1];");
    w.line("let other = change[2];");
    w.line(`if (change[0] == ${TABLE_OP.set}u) { table[slot] = table[other] + change[3]; }`);
    w.line(`else if (change[0] == ${TABLE_OP.advance}u) { table[slot] = table[slot] + change[3]; }`);
    w.line("else { let kept = table[slot]; table[slot] = table[other]; table[other] = kept; }");
  });
  return { code: shaderCode(declarations(WORDS_PER_CHANGE * numChanges, [], true), w, 1), workgroups: 1 };
}

/** Words of each dynamic index: those of its place, the largest index, the distance in bytes. */
export const WORDS_PER_TERM = WORDS_PER_ARG + 2;

/**
 * Sets a slot to the start of a dynamic slice. Its parameters are the slot, the place it starts from, and the terms.
 *
 * @param slabs the slab of each index
 */
export function addressShader(slabs: ShaderSlabs): WgslShader {
  const w = new WgslWriter();
  const first = 1 + WORDS_PER_ARG;
  w.line("if (global_invocation_id.x > 0u || num_workgroups.x == 0u) { return; }");
  w.line(`var address = table[${param(1)}] + ${param(2)};`);
  range(slabs.numArguments).forEach((i) => {
    const [slot, offset, max, stride] = range(WORDS_PER_TERM).map((word) =>
      param(first + WORDS_PER_TERM * i + word),
    );
    const index = `bitcast<i32>(${slabs.read(i, `(table[${slot}] + ${offset}) >> 2u`)})`;
    w.line(`address += u32(clamp(${index}, 0, i32(${max}))) * ${stride};`);
  });
  w.line(`table[${param(0)}] = address;`);
  const head = declarations(
    first + WORDS_PER_TERM * slabs.numArguments,
    slabs.declarations(() => "u32"),
    true,
  );
  return { code: shaderCode(head, w, 1), workgroups: 1 };
}

/** Copies the word that holds a value to a slot of the address table, from where the host reads it. */
export function fetchShader(isByte: boolean, slabs: ShaderSlabs): WgslShader {
  const w = new WgslWriter();
  w.line("if (global_invocation_id.x > 0u || num_workgroups.x == 0u) { return; }");
  w.line(`let address = table[${param(0)}] + ${param(1)};`);
  const word = slabs.read(0, "address >> 2u");
  w.line(`table[${param(2)}] = ${isByte ? `(${word} >> ((address & 3u) * 8u)) & 0xffu` : word};`);
  return {
    code: shaderCode(
      declarations(
        3,
        slabs.declarations(() => "u32"),
        true,
      ),
      w,
      1,
    ),
    workgroups: 1,
  };
}
