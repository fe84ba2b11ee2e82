import { type HostTensor, numbersOf } from "../../src/engines/reference/hostTensor.js";
import { interpretSpmd } from "../../src/engines/reference/interpret.js";
import { type DType, isFloat } from "../../src/ir/dtype.js";
import type { MeshShape } from "../../src/ir/mesh.js";
import type { Program } from "../../src/ir/program.js";
import { at, formatType, range } from "../../src/ir/shape.js";
import { unitOfLastPlace } from "./floatBits.js";
import { interpretPerturbed } from "./perturbed.js";

/** How many perturbed interpretations show what rounding may do to a result. */
const NUM_SAMPLES = 12;

/** What a program gives, and which other results its roundings explain. */
export interface Oracle {
  /** For every output one tensor per device, as the reference engine gives them. */
  readonly expected: readonly (readonly HostTensor[])[];
  /** What perturbed interpretations give for an output on a device. */
  samples(output: number, device: number): HostTensor[];
  /** How an engine's result differs from every one that rounding explains; nothing when it does not. */
  difference(output: number, device: number, got: HostTensor): string | undefined;
}

/**
 * The judge of an engine's results for a program: integers, booleans, infinities, NaN and floats that need no
 * rounding must be those of the reference engine. Other floats must lie among what the program gives when the
 * rounding of each of its ops is another one, element by element. Where that decides between two integers or
 * between a number and an infinity, each that comes out is right, and nothing else is.
 *
 * Sums, differences, products, quotients and roots have one right rounding, unless `joinsOps` says that who computes
 * may join them, as XLA does.
 */
export function oracleFor(
  program: Program,
  mesh: MeshShape,
  inputs: readonly (readonly HostTensor[])[],
  { joinsOps = false }: { readonly joinsOps?: boolean } = {},
): Oracle {
  const expected = interpretSpmd(program, mesh, inputs);
  let samples: HostTensor[][][] | undefined;
  const perturbed = () => {
    samples ??= range(NUM_SAMPLES).map((seed) =>
      interpretPerturbed(program, mesh, inputs, { seed, joinsOps, keepsDigits: joinsOps && seed % 2 === 1 }),
    );
    return samples;
  };
  const samplesOf = (output: number, device: number) => perturbed().map((run) => at(at(run, output), device));
  return {
    expected,
    samples: samplesOf,
    difference: (output, device, got) =>
      findDifference(got, at(at(expected, output), device), () => samplesOf(output, device)),
  };
}

/**
 * How a tensor differs from all that perturbed interpretations explain; nothing when it does not.
 *
 * @param samples what perturbed interpretations give, asked for only if the tensors differ
 */
export function findDifference(
  got: HostTensor,
  want: HostTensor,
  samples: () => readonly HostTensor[],
): string | undefined {
  if (formatType(got.type) !== formatType(want.type)) {
    return `it is ${formatType(got.type)} instead of ${formatType(want.type)}`;
  }
  const [values, wanted] = [numbersOf(got), numbersOf(want)];
  if (values.length !== wanted.length) return `it has ${values.length} elements instead of ${wanted.length}`;
  const suspects = range(values.length).filter((i) => !Object.is(values[i], wanted[i]));
  if (suspects.length === 0) return undefined;
  const others = samples().map(numbersOf);
  for (const i of suspects) {
    const [value, expected] = [at(values, i), at(wanted, i)];
    const possible = [expected, ...others.map((sample) => at(sample, i))];
    if (!isExplained(value, possible, want.type.dtype)) {
      return `element ${i} of ${values.length} is ${show(value)} instead of ${show(expected)}; ${explain(possible)}`;
    }
  }
  return undefined;
}

/** Whether one of the possible values, or of those between neighbours among them, explains a result. */
export function isExplained(value: number, possible: readonly number[], dtype: DType): boolean {
  if (possible.some((x) => Object.is(x, value))) return true;
  if (!isFloat(dtype) || !Number.isFinite(value)) return false;
  const clusters = clustersOf(possible.filter(Number.isFinite), dtype);
  const spread = Math.max(0, ...clusters.map(({ low, high }) => high - low));
  return spread > 0 && clusters.some(({ low, high }) => value >= low - spread && value <= high + spread);
}

interface Cluster {
  readonly low: number;
  readonly high: number;
}

/**
 * The stretches that values fill: roundings move a result continuously, so that a gap of almost the whole range
 * is a jump, such as that of `floor`, and nothing in it is explained.
 */
function clustersOf(values: readonly number[], dtype: DType): Cluster[] {
  const sorted = [...values].sort((a, b) => a - b);
  const [low, high] = [sorted[0], sorted.at(-1)];
  if (low === undefined || high === undefined) return [];
  const step = 2 * unitOfLastPlace(Math.max(-low, high), dtype);
  const jump = Math.max(step, 0.9 * (high - low));
  const cut = sorted.findIndex((x, i) => i > 0 && x - at(sorted, i - 1) > jump);
  if (cut < 0) return [{ low, high }];
  return [...clustersOf(sorted.slice(0, cut), dtype), ...clustersOf(sorted.slice(cut), dtype)];
}

const show = (x: number): string => (Object.is(x, -0) ? "-0" : String(x));

function explain(possible: readonly number[]): string {
  const distinct = [...new Set(possible.map(show))];
  const numbers = possible.filter(Number.isFinite);
  const listed =
    distinct.length <= 4 ? distinct.join(", ") : `${Math.min(...numbers)} … ${Math.max(...numbers)}`;
  return distinct.length === 1 ? "nothing else is possible" : `rounding explains ${listed}`;
}
