/** Einstein's summation: a parser for subscripts and a pairwise order of contraction. */
import { need } from "../../ir/arguments.js";
import type { DType } from "../../ir/dtype.js";
import { ShapeError, ValueError } from "../../ir/errors.js";
import { at, formatType, range } from "../../ir/shape.js";
import * as ops from "../../trace/ops.js";
import { operandType, promoteTypes, type TensorLike } from "../../trace/promote.js";
import type { Tensor } from "../../trace/tensor.js";
import { multiply } from "../elementwise/arithmetic.js";
import { asTensor, cast, toType, wideType } from "../operands.js";
import { type ProductOptions, product } from "./contraction.js";
import { diagonal } from "./diagonals.js";

/** A tensor whose dims have labels. */
interface Labelled {
  readonly x: Tensor;
  readonly labels: readonly string[];
}

/** Parsed subscripts: the labels of every operand and of the result. */
export interface Subscripts {
  readonly inputs: readonly (readonly string[])[];
  readonly output: readonly string[];
}

/**
 * Sums of products written with one letter per dim. Letters that the result does not have are summed over;
 * `...` stands for further dims, which broadcast; without `->` the result has the letters that occur once, in
 * alphabetical order.
 *
 * ```ts
 * np.einsum("bij,bjk->bik", x, y) // a batch of matrix products
 * np.einsum("ii", x)              // the trace
 * ```
 *
 * @example
 * ```ts
 * np.einsum("ij,j->i", np.array([[1, 2], [3, 4]]), np.array([1, 1])); // [3, 7]
 * ```
 */
export function einsum(subscripts: string, ...args: readonly (TensorLike | ProductOptions)[]): Tensor {
  need("string", subscripts, "subscripts", "einsum");
  const last = args.at(-1);
  const options = isOptions(last) ? last : {};
  const values = args.filter((arg): arg is TensorLike => !isOptions(arg));
  const tensors = values.map((value) => asTensor(value, "einsum"));
  const { inputs, output } = parseSubscripts(
    subscripts,
    tensors.map((x) => x.ndim),
  );
  const sizes = labelSizes(subscripts, inputs, tensors);
  const dtype = operandType(...values);
  const terms = values.map((value, i) =>
    prepare({ x: toType(value, dtype, "einsum"), labels: at(inputs, i) }, sizes),
  );
  const result = contractAll(terms, output, sizes, options);
  const permuted = ops.transpose(
    result.x,
    output.map((label) => result.labels.indexOf(label)),
  );
  return cast(permuted, options.preferredElementType ?? dtype);
}

function isOptions(arg: TensorLike | ProductOptions | undefined): arg is ProductOptions {
  return typeof arg === "object" && arg !== null && Object.getPrototypeOf(arg) === Object.prototype;
}

/**
 * Parses subscripts for operands of the given numbers of dims. The dims behind `...` get the labels
 * `...0`, `...1`, … counted from the last.
 */
export function parseSubscripts(subscripts: string, ranks: readonly number[]): Subscripts {
  const refuse = (what: string): never => {
    throw new ValueError(`[einsum] "${subscripts}": ${what}`);
  };
  const text = subscripts.replaceAll(/\s/g, "");
  const [left = "", right, ...more] = text.split("->");
  if (more.length > 0) refuse('"->" may appear only once');
  const parts = left.split(",");
  if (parts.length !== ranks.length) {
    refuse(`it names ${parts.length} operands, but ${ranks.length} were given`);
  }
  const dots = (n: number) => range(n).map((i) => `...${n - 1 - i}`);
  const letters = (part: string) => {
    const pieces = part.split("...");
    if (pieces.length > 2) refuse(`"${part}" has more than one "..."`);
    for (const piece of pieces) {
      const wrong = /[^A-Za-z]/.exec(piece);
      if (wrong) refuse(`"${wrong[0]}" is not a letter`);
    }
    return pieces.map((piece) => [...piece]);
  };
  let hidden = 0;
  const inputs = parts.map((part, i) => {
    const [front = [], back] = letters(part);
    const rank = at(ranks, i);
    const named = front.length + (back?.length ?? 0);
    if (back ? named > rank : named !== rank) {
      refuse(`"${part}" names ${named} dims, but operand ${i} has ${rank}`);
    }
    if (!back) return front;
    hidden = Math.max(hidden, rank - named);
    return [...front, ...dots(rank - named), ...back];
  });
  const used = inputs.flat();
  if (right === undefined) {
    const once = [...new Set(used)].filter((label) => used.filter((other) => other === label).length === 1);
    return { inputs, output: [...dots(hidden), ...once.filter((label) => label.length === 1).sort()] };
  }
  const [front = [], back] = letters(right);
  const output = back ? [...front, ...dots(hidden), ...back] : front;
  if (!back && hidden > 0) refuse('the operands have dims behind "...", so the result needs "..." too');
  const unknown = output.find((label) => !used.includes(label));
  if (unknown !== undefined) refuse(`the result has "${unknown}", which no operand has`);
  if (new Set(output).size !== output.length) refuse("the result names a letter twice");
  return { inputs, output };
}

type Sizes = ReadonlyMap<string, number>;

/** The size of every label; a dim of size 1 goes with any size. */
function labelSizes(
  subscripts: string,
  inputs: readonly (readonly string[])[],
  tensors: readonly Tensor[],
): Sizes {
  const sizes = new Map<string, number>();
  inputs.forEach((labels, i) => {
    labels.forEach((label, d) => {
      const n = at(at(tensors, i).shape, d);
      const known = sizes.get(label) ?? 1;
      if (known !== 1 && n !== 1 && known !== n) {
        const types = tensors.map((x) => formatType(x.type)).join(", ");
        throw new ShapeError(
          `[einsum] "${subscripts}": "${label}" has sizes ${known} and ${n} in (${types}); a letter stands for one size`,
        );
      }
      sizes.set(label, known === 1 ? n : known);
    });
  });
  return sizes;
}

/** Takes diagonals of repeated labels, and drops dims of size 1 whose label is larger elsewhere. */
function prepare(term: Labelled, sizes: Sizes): Labelled {
  const isKept = (label: string, d: number) => at(term.x.shape, d) !== 1 || sizes.get(label) === 1;
  let labels = term.labels.filter(isKept);
  let x = ops.reshape(
    term.x,
    term.x.shape.filter((_, d) => isKept(at(term.labels, d), d)),
  );
  for (;;) {
    const twice = labels.findIndex((label, d) => labels.indexOf(label) !== d);
    if (twice < 0) return { x, labels };
    const label = at(labels, twice);
    const first = labels.indexOf(label);
    x = diagonal(x, { dim1: first, dim2: twice });
    labels = [...labels.filter((_, d) => d !== first && d !== twice), label];
  }
}

/** Contracts the cheapest pair until one tensor is left that has the result's labels. */
function contractAll(
  terms: readonly Labelled[],
  output: readonly string[],
  sizes: Sizes,
  options: ProductOptions,
): Labelled {
  let rest = [...terms];
  while (rest.length > 1) {
    const [i, j] = cheapestPair(rest, output, sizes);
    const others = rest.filter((_, k) => k !== i && k !== j);
    const needed = new Set([...output, ...others.flatMap((term) => term.labels)]);
    rest = [...others, contractPair(at(rest, i), at(rest, j), needed, options)];
  }
  return sumOut(at(rest, 0), new Set(output), options.preferredElementType);
}

/** The pair whose product makes the least larger tensor out of its operands, then the one with least work. */
function cheapestPair(terms: readonly Labelled[], output: readonly string[], sizes: Sizes): [number, number] {
  const volume = (labels: Iterable<string>) =>
    [...labels].reduce((n, label) => n * (sizes.get(label) ?? 1), 1);
  let best: { pair: [number, number]; growth: number; work: number } | undefined;
  for (let i = 0; i < terms.length; i++) {
    for (let j = i + 1; j < terms.length; j++) {
      const [a, b] = [at(terms, i).labels, at(terms, j).labels];
      const others = terms.flatMap((term, k) => (k === i || k === j ? [] : term.labels));
      const joined = new Set([...a, ...b]);
      const kept = [...joined].filter((label) => output.includes(label) || others.includes(label));
      const growth = volume(kept) - volume(a) - volume(b);
      const work = volume(joined);
      const isBetter = !best || growth < best.growth || (growth === best.growth && work < best.work);
      if (isBetter) best = { pair: [i, j], growth, work };
    }
  }
  return best?.pair ?? [0, 1];
}

function contractPair(
  left: Labelled,
  right: Labelled,
  needed: ReadonlySet<string>,
  options: ProductOptions,
): Labelled {
  // Labels of one operand alone are summed before the product, which is cheaper.
  const a = sumOut(left, new Set([...needed, ...right.labels]));
  const b = sumOut(right, new Set([...needed, ...left.labels]));
  const shared = a.labels.filter((label) => b.labels.includes(label));
  const batch = shared.filter((label) => needed.has(label));
  const contract = shared.filter((label) => !needed.has(label));
  const own = (term: Labelled) => term.labels.filter((label) => !shared.includes(label));
  const labels = [...batch, ...own(a), ...own(b)];
  const common = promoteTypes(a.x.dtype, b.x.dtype);
  const [p, q] = [cast(a.x, common), cast(b.x, common)];
  if (contract.length === 0) {
    const [spreadP, spreadQ] = [spread(p, a.labels, labels), spread(q, b.labels, labels)];
    const dtype = options.preferredElementType ?? common;
    return { x: multiply(cast(spreadP, dtype), cast(spreadQ, dtype)), labels };
  }
  const dims = (term: Labelled, wanted: readonly string[]) =>
    wanted.map((label) => term.labels.indexOf(label));
  const x = product(
    p,
    q,
    {
      lhsContract: dims(a, contract),
      rhsContract: dims(b, contract),
      lhsBatch: dims(a, batch),
      rhsBatch: dims(b, batch),
    },
    options,
  );
  return { x, labels };
}

/** A tensor with its dims in the order of `wanted`, and dims of size 1 for the labels it has not. */
function spread(x: Tensor, labels: readonly string[], wanted: readonly string[]): Tensor {
  const present = wanted.filter((label) => labels.includes(label));
  const ordered = ops.transpose(
    x,
    present.map((label) => labels.indexOf(label)),
  );
  return ops.reshape(
    ordered,
    wanted.map((label) => (labels.includes(label) ? at(x.shape, labels.indexOf(label)) : 1)),
  );
}

function sumOut({ x, labels }: Labelled, needed: ReadonlySet<string>, dtype: DType = x.dtype): Labelled {
  const dims = range(labels.length).filter((d) => !needed.has(at(labels, d)));
  if (dims.length === 0) return { x, labels };
  if (x.dtype === "bool")
    return { x: ops.reduceMax(x, dims), labels: labels.filter((_, d) => !dims.includes(d)) };
  const summed = ops.reduceSum(cast(x, wideType(dtype)), dims);
  return { x: cast(summed, dtype), labels: labels.filter((_, d) => !dims.includes(d)) };
}
