import { describe } from "../describe.js";
import { byteSize, isDType, isFloat } from "../dtype.js";
import { type Domain, type Family, opFacts, rowsOf, type UniformOp, uniformFamilies } from "../opFacts.js";
import { float8Types, type OpName, type OpParams, type Precision, precisions } from "../ops.js";
import { at, range, sameNumbers, sizeOf, type TensorType, tensorType } from "../shape.js";
import { attentionBackwardTypes, attentionTypes } from "./inferAttention.js";
import {
  broken,
  checkDim,
  checkDims,
  checkShape,
  checkStarts,
  checkWhole,
  checkWholes,
  commonDType,
  commonShape,
  count,
  type Operand,
  RuleBroken,
  require,
  sameAsOperand,
  type TypeRule,
  typeOf,
} from "./inferChecks.js";
import { collectiveTypes } from "./inferCollectives.js";
import { inferControl } from "./inferControl.js";
import { keepsEqual, nothingVaries, resultVarying, varyingAlong } from "./varying.js";

/** The result types of an op applied to operands; errors name the op, the operand types and the rule broken. */
export function inferTypes<K extends OpName>(
  op: K,
  ins: readonly Operand[],
  params: OpParams[K],
): TensorType[] {
  const rule: TypeRule<K> = typeRules[op];
  try {
    if (typeof params !== "object" || params === null)
      throw broken.value(`its parameters must be an object, got ${describe(params)}`);
    const types = withWeakness(op, ins, rule(ins, params, op));
    // Sums and products of sizes may exceed the safe integers.
    for (const { shape } of types) checkShape(shape);
    if (keepsEqual(op) && nothingVaries(ins)) return types;
    const varying = resultVarying(op, ins, params, types.length);
    return types.map((type, i) => varyingAlong(type, at(varying, i)));
  } catch (error) {
    if (error instanceof RuleBroken) throw error.describe(op, ins);
    throw error;
  }
}

/** The families whose results are weakly typed where all operands are, as in JAX; constants adapt to the others. */
const weakFamilies: readonly Family[] = ["unary", "binary", "elementwise", "movement", "indexing", "barrier"];

function withWeakness(op: OpName, ins: readonly Operand[], types: TensorType[]): TensorType[] {
  if (!ins.some(({ type }) => type.weak) || op === "convert" || op === "bitcast") return types;
  if (!weakFamilies.includes(opFacts[op].family)) return types;
  if (ins.some(({ kind, type }) => kind === "var" && isFloat(type.dtype) && !type.weak)) return types;
  return types.map((type) => (isFloat(type.dtype) ? { ...type, weak: true } : type));
}

/** The result has the type of the operands, which must be one that the op is defined for. */
const uniform: TypeRule<UniformOp> = (ins, _, op) => {
  const { family, on } = opFacts[op];
  count(ins, family === "unary" ? 1 : 2);
  const dtype = commonDType(ins);
  require(dtype, on);
  return [tensorType(dtype, commonShape(ins))];
};

const reduce =
  (domain: Domain) =>
  (ins: readonly Operand[], { dims }: { readonly dims: readonly number[] }): TensorType[] => {
    count(ins, 1);
    const { dtype, shape } = typeOf(ins, 0);
    require(dtype, domain);
    checkDims(dims, shape.length);
    const kept = shape.filter((_, d) => !dims.includes(d));
    return [tensorType(dtype, kept)];
  };

const indexOfExtreme = (ins: readonly Operand[], { dim }: { readonly dim: number }): TensorType[] => {
  count(ins, 1);
  const { shape } = typeOf(ins, 0);
  checkDim(dim, shape.length);
  if (shape[dim] === 0) throw broken.shape(`dim ${dim} has size 0, so it has no extreme element`);
  return [tensorType("int32", shape.toSpliced(dim, 1))];
};

function gatherShape(
  x: TensorType,
  indices: TensorType,
  { dim, batchDims }: { readonly dim: number; readonly batchDims: number },
): number[] {
  checkDim(dim, x.shape.length);
  if (indices.dtype !== "int32") throw broken.dtype(`indices must be int32, not ${indices.dtype}`);
  checkWhole(batchDims, "batchDims", 0, Math.min(dim, indices.shape.length));
  const batch = x.shape.slice(0, batchDims);
  if (!sameNumbers(batch, indices.shape.slice(0, batchDims))) {
    throw broken.shape(`the first ${batchDims} dims of x and indices must agree`);
  }
  if (x.shape[dim] === 0 && sizeOf(indices.shape) > 0) throw broken.shape(`dim ${dim} is empty`);
  const rest = indices.shape.slice(batchDims);
  return [...batch, ...x.shape.slice(batchDims, dim), ...rest, ...x.shape.slice(dim + 1)];
}

/** The type of a product of groups of rows; messages say what the dims are called. */
function raggedDotType(
  ins: readonly Operand[],
  { ragged, dtype, precision }: OpParams["raggedDot"],
): TensorType {
  count(ins, 3);
  checkPrecision(precision);
  const [x, y, sizes] = [typeOf(ins, 0), typeOf(ins, 1), typeOf(ins, 2)];
  require(commonDType(ins.slice(0, 2)), "number");
  if (sizes.dtype !== "int32") throw broken.dtype(`the sizes of groups must be int32, not ${sizes.dtype}`);
  const rank = x.shape.length - 2;
  const isRows = ragged === "rows";
  const dims = `[batch…, rows, inputs], ${isRows ? "[batch…, groups, inputs, outputs]" : "[batch…, rows, outputs]"} and [batch…, groups]`;
  const hasDims = rank >= 0 && y.shape.length === rank + (isRows ? 3 : 2) && sizes.shape.length === rank + 1;
  const [m, k] = x.shape.slice(rank);
  const [g] = sizes.shape.slice(rank);
  const agrees = isRows ? y.shape[rank] === g && y.shape[rank + 1] === k : y.shape[rank] === m;
  const batch = x.shape.slice(0, Math.max(0, rank));
  const isBatched = [y, sizes].every(({ shape }) => sameNumbers(shape.slice(0, batch.length), batch));
  if (!hasDims || !agrees || !isBatched) throw broken.shape(`needs operands ${dims}`);
  const n = at(y.shape, y.shape.length - 1);
  return tensorType(dtype, isRows ? [...batch, m ?? 0, n] : [...batch, g ?? 0, k ?? 0, n]);
}

function checkPrecision(precision: Precision | undefined): void {
  if (precision !== undefined && !precisions.includes(precision)) {
    throw broken.value(`precision ${describe(precision)} is not one of ${precisions.join(", ")}`);
  }
}

const typeRules: { readonly [K in OpName]: TypeRule<K> } = {
  ...rowsOf(uniformFamilies, uniform),
  isFinite: (ins) => {
    count(ins, 1);
    require(typeOf(ins, 0).dtype, "float");
    return [tensorType("bool", typeOf(ins, 0).shape)];
  },
  convert: (ins, { dtype }) => {
    count(ins, 1);
    if (!isDType(dtype)) throw broken.dtype(`${describe(dtype)} is not a data type`);
    return [tensorType(dtype, typeOf(ins, 0).shape)];
  },
  bitcast: (ins, { dtype }) => {
    count(ins, 1);
    const from = typeOf(ins, 0).dtype;
    if (byteSize(from) !== byteSize(dtype) || (from === "bool") !== (dtype === "bool")) {
      throw broken.dtype(
        `${from} (${byteSize(from)} bytes) cannot be read as ${dtype} (${byteSize(dtype)} bytes)`,
      );
    }
    return [tensorType(dtype, typeOf(ins, 0).shape)];
  },
  xlaFunction: (ins) => {
    count(ins, 1);
    require(typeOf(ins, 0).dtype, "float");
    return [tensorType(typeOf(ins, 0).dtype, typeOf(ins, 0).shape)];
  },
  roundFloat8: (ins, { format }) => {
    count(ins, 1);
    const { dtype, shape } = typeOf(ins, 0);
    require(dtype, "float");
    if (!float8Types.includes(format)) {
      throw broken.value(`${describe(format)} is not one of ${float8Types.join(", ")}`);
    }
    return [tensorType(dtype, shape)];
  },
  compare: (ins) => {
    count(ins, 2);
    commonDType(ins);
    return [tensorType("bool", commonShape(ins))];
  },
  select: (ins) => {
    count(ins, 3);
    if (typeOf(ins, 0).dtype !== "bool") throw broken.dtype("the predicate must be bool");
    return [tensorType(commonDType(ins.slice(1)), commonShape(ins))];
  },
  clamp: (ins) => {
    count(ins, 3);
    const dtype = commonDType(ins);
    require(dtype, "number");
    return [tensorType(dtype, commonShape(ins))];
  },
  threefry2x32: (ins) => {
    count(ins, 4);
    if (commonDType(ins) !== "uint32") throw broken.dtype("keys and counters must be uint32");
    const type = tensorType("uint32", commonShape(ins));
    return [type, type];
  },
  name: sameAsOperand,
  stopGradient: sameAsOperand,
  pvary: sameAsOperand,
  optimizationBarrier: (ins) => ins.map(({ type }) => type),

  iota: (ins, { dtype, shape, dim }) => {
    count(ins, 0);
    checkShape(shape);
    checkDim(dim, shape.length);
    require(dtype, "number");
    return [tensorType(dtype, shape)];
  },
  broadcastInDim: (ins, { shape, dims }) => {
    count(ins, 1);
    const x = typeOf(ins, 0);
    checkShape(shape);
    checkWholes(dims, "dims");
    if (dims.length !== x.shape.length)
      throw broken.dim(`dims [${dims}] must name one result dim per operand dim`);
    dims.forEach((dim, i) => {
      checkDim(dim, shape.length);
      if (i > 0 && dim <= at(dims, i - 1)) throw broken.dim(`dims [${dims}] must increase`);
      if (x.shape[i] !== 1 && x.shape[i] !== shape[dim]) {
        throw broken.shape(`operand dim ${i} of size ${x.shape[i]} cannot become dim ${dim} of [${shape}]`);
      }
    });
    return [tensorType(x.dtype, shape)];
  },
  reshape: (ins, { shape }) => {
    count(ins, 1);
    const x = typeOf(ins, 0);
    checkShape(shape);
    if (sizeOf(shape) !== sizeOf(x.shape)) {
      throw broken.shape(`${sizeOf(x.shape)} elements do not fill [${shape}] (${sizeOf(shape)} elements)`);
    }
    return [tensorType(x.dtype, shape)];
  },
  transpose: (ins, { permutation }) => {
    count(ins, 1);
    const x = typeOf(ins, 0);
    checkDims(permutation, x.shape.length);
    if (permutation.length !== x.shape.length) {
      throw broken.dim(`permutation [${permutation}] must name all ${x.shape.length} dims`);
    }
    const shape = permutation.map((d) => at(x.shape, d));
    return [tensorType(x.dtype, shape)];
  },
  reverse: (ins, { dims }) => {
    checkDims(dims, typeOf(ins, 0).shape.length);
    return sameAsOperand(ins);
  },
  slice: (ins, { starts, limits, strides }) => {
    count(ins, 1);
    const x = typeOf(ins, 0);
    const rank = x.shape.length;
    checkWholes(starts, "starts", rank);
    checkWholes(limits, "limits", rank);
    checkWholes(strides, "strides", rank);
    const shape = x.shape.map((n, d) => {
      const [start, limit, stride] = [at(starts, d), at(limits, d), at(strides, d)];
      if (!(start >= 0 && start <= limit && limit <= n && stride >= 1)) {
        throw broken.shape(`slice ${start}:${limit}:${stride} does not lie in dim ${d} of size ${n}`);
      }
      return Math.ceil((limit - start) / stride);
    });
    return [tensorType(x.dtype, shape)];
  },
  pad: (ins, { low, high, interior }) => {
    count(ins, 2);
    const x = typeOf(ins, 0);
    commonDType(ins);
    if (typeOf(ins, 1).shape.length !== 0) throw broken.shape("the padding value must be a scalar");
    const rank = x.shape.length;
    checkWholes(low, "low", rank);
    checkWholes(high, "high", rank);
    checkWholes(interior, "interior", rank);
    const shape = x.shape.map((n, d) => {
      const between = at(interior, d);
      if (between < 0) throw broken.value(`interior padding ${between} of dim ${d} is negative`);
      const size = at(low, d) + n + Math.max(0, n - 1) * between + at(high, d);
      if (size < 0)
        throw broken.shape(`padding (${low[d]}, ${high[d]}) leaves dim ${d} with a negative size`);
      return size;
    });
    return [tensorType(x.dtype, shape)];
  },
  concatenate: (ins, { dim }) => {
    if (ins.length === 0) throw broken.value("needs at least one operand");
    const first = typeOf(ins, 0);
    const dtype = commonDType(ins);
    checkDim(dim, first.shape.length);
    let total = 0;
    for (const { type } of ins) {
      const fits =
        type.shape.length === first.shape.length &&
        type.shape.every((n, d) => d === dim || n === first.shape[d]);
      if (!fits) throw broken.shape(`shapes may differ only in dim ${dim}`);
      total += at(type.shape, dim);
    }
    return [tensorType(dtype, first.shape.with(dim, total))];
  },
  dynamicSlice: (ins, { sizes }) => {
    const x = typeOf(ins, 0);
    checkStarts(ins.slice(1), x.shape.length);
    checkShape(sizes);
    if (sizes.length !== x.shape.length || sizes.some((n, d) => n > at(x.shape, d))) {
      throw broken.shape(`sizes [${sizes}] do not fit into [${x.shape}]`);
    }
    return [tensorType(x.dtype, sizes)];
  },
  dynamicUpdateSlice: (ins) => {
    const [x, update] = [typeOf(ins, 0), typeOf(ins, 1)];
    checkStarts(ins.slice(2), x.shape.length);
    commonDType(ins.slice(0, 2));
    if (update.shape.length !== x.shape.length || update.shape.some((n, d) => n > at(x.shape, d))) {
      throw broken.shape(`the update [${update.shape}] does not fit into [${x.shape}]`);
    }
    return [x];
  },
  gather: (ins, params) => {
    count(ins, 2);
    return [tensorType(typeOf(ins, 0).dtype, gatherShape(typeOf(ins, 0), typeOf(ins, 1), params))];
  },
  scatter: (ins, params) => {
    count(ins, 3);
    const [x, updates] = [typeOf(ins, 0), typeOf(ins, 2)];
    const shape = gatherShape(x, typeOf(ins, 1), params);
    if (!sameNumbers(shape, updates.shape)) throw broken.shape(`the updates must have shape [${shape}]`);
    if (x.dtype !== updates.dtype) throw broken.dtype("x and updates must have the same data type");
    if (params.combine === "add") require(x.dtype, "number");
    return [x];
  },

  reduceSum: reduce("number"),
  reduceMax: reduce("any"),
  reduceMin: reduce("any"),
  argmax: indexOfExtreme,
  argmin: indexOfExtreme,
  cumsum: (ins, { dim, reverse }) => {
    if (typeof reverse !== "boolean")
      throw broken.value(`reverse must be true or false, got ${describe(reverse)}`);
    checkDim(dim, typeOf(ins, 0).shape.length);
    require(typeOf(ins, 0).dtype, "number");
    return sameAsOperand(ins);
  },
  sort: (ins, { dim, numKeys }) => {
    const { shape } = typeOf(ins, 0);
    checkDim(dim, shape.length);
    if (ins.some(({ type }) => !sameNumbers(type.shape, shape)))
      throw broken.shape("operands must have one shape");
    checkWhole(numKeys, "numKeys", 1, ins.length);
    return ins.map(({ type }) => type);
  },
  dotGeneral: (ins, { lhsContract, rhsContract, lhsBatch, rhsBatch, dtype, precision }) => {
    count(ins, 2);
    checkPrecision(precision);
    const [x, y] = [typeOf(ins, 0), typeOf(ins, 1)];
    require(commonDType(ins), "number");
    for (const dims of [lhsBatch, lhsContract, rhsBatch, rhsContract]) checkWholes(dims, "dims");
    checkDims([...lhsBatch, ...lhsContract], x.shape.length);
    checkDims([...rhsBatch, ...rhsContract], y.shape.length);
    const pair = (lhs: readonly number[], rhs: readonly number[], what: string) => {
      if (lhs.length !== rhs.length) throw broken.dim(`${what} dims [${lhs}] and [${rhs}] must pair up`);
      lhs.forEach((l, i) => {
        const r = at(rhs, i);
        if (x.shape[l] !== y.shape[r]) {
          throw broken.shape(`${what} dims ${l} and ${r} have sizes ${x.shape[l]} and ${y.shape[r]}`);
        }
      });
    };
    pair(lhsContract, rhsContract, "contracted");
    pair(lhsBatch, rhsBatch, "batch");
    const free = (type: TensorType, used: readonly number[]) =>
      type.shape.filter((_, d) => !used.includes(d));
    const batch = lhsBatch.map((d) => at(x.shape, d));
    const rows = free(x, [...lhsBatch, ...lhsContract]);
    return [tensorType(dtype, [...batch, ...rows, ...free(y, [...rhsBatch, ...rhsContract])])];
  },

  raggedDot: (ins, params) => [raggedDotType(ins, params)],
  attention: attentionTypes,
  attentionBackward: attentionBackwardTypes,

  scan: (ins, params) => inferControl.scan(ins, params),
  while: (ins, params) => inferControl.while(ins, params),
  cond: (ins, params) => inferControl.cond(ins, params),
  remat: (ins, { body }) => inferControl.call("remat", ins, body),
  customVjp: (ins, { body }) => inferControl.call("customVjp", ins, body),

  ...collectiveTypes,

  callback: (_, { results }) => [...results],

  shardMap: (ins, params) => inferControl.shardMap(ins, params),
  shardingConstraint: (ins, { spec }) => {
    const { shape } = typeOf(ins, 0);
    if (spec.length !== shape.length)
      throw broken.dim(`the spec has ${spec.length} entries for ${range(shape.length).length} dims`);
    return sameAsOperand(ins);
  },
};
