/** Which dims of a convolution's operands and result are batch, features and space. */
import { need } from "../ir/arguments.js";
import { DimError } from "../ir/errors.js";
import { range, type Shape, sameNumbers } from "../ir/shape.js";

/** The dims of operands and result: batch and features (for the kernel: outputs and inputs), then space. */
export interface ConvDimensionNumbers {
  readonly lhsSpec: readonly number[];
  readonly rhsSpec: readonly number[];
  readonly outSpec: readonly number[];
}

/**
 * The layouts of a convolution, as letters for each dim (`["NHWC", "HWIO", "NHWC"]`: N batch, C features, O and I
 * the kernel's outputs and inputs, any other letters space) or as numbers.
 */
export type ConvLayouts = readonly [lhs: string, rhs: string, out: string] | ConvDimensionNumbers;

/** Layouts that are numbers already: each names every dim once. */
function numbered(layouts: ConvLayouts, rank: number, caller: string): ConvDimensionNumbers {
  const { lhsSpec, rhsSpec, outSpec } = layouts as ConvDimensionNumbers;
  const specs = { lhsSpec, rhsSpec, outSpec };
  for (const [name, spec] of Object.entries(specs)) {
    need("integers", spec, name, caller);
    if (
      !sameNumbers(
        [...spec].sort((a, b) => a - b),
        range(rank),
      )
    ) {
      throw new DimError(`[${caller}] ${name} [${spec}] must name each of the ${rank} dims once`);
    }
  }
  return specs;
}

/**
 * Layouts as numbers; without any, batch and features (outputs and inputs) come first.
 *
 * @example
 * ```ts
 * lax.convDimensionNumbers([1, 8, 3], [2, 3, 4], ["NHC", "HIO", "NHC"]).rhsSpec; // [2, 1, 0]
 * ```
 */
export function convDimensionNumbers(
  lhsShape: Shape,
  rhsShape: Shape,
  layouts?: ConvLayouts,
): ConvDimensionNumbers {
  need("integers", lhsShape, "lhsShape", "lax.convDimensionNumbers");
  need("integers", rhsShape, "rhsShape", "lax.convDimensionNumbers");
  const caller = "lax.convDimensionNumbers";
  const rank = lhsShape.length;
  if (rhsShape.length !== rank || rank < 2) {
    throw new DimError(
      `[${caller}] operand and kernel need equally many dims, at least 2, but have ${rank} and ${rhsShape.length}`,
    );
  }
  if (layouts === undefined) return { lhsSpec: range(rank), rhsSpec: range(rank), outSpec: range(rank) };
  if (!Array.isArray(layouts)) return numbered(layouts, rank, caller);
  need("strings", layouts, "the layouts", caller);
  const [lhs = "", rhs = "", out = ""] = layouts;
  const space = [...rhs].filter((letter) => letter !== "O" && letter !== "I");
  const spec = (letters: string, first: string, second: string) => {
    const order = [first, second, ...space];
    if (letters.length !== rank || order.some((letter) => letters.split(letter).length !== 2)) {
      throw new DimError(
        `[${caller}] layout "${letters}" must name each of ${order.join(", ")} once, for ${rank} dims`,
      );
    }
    return order.map((letter) => letters.indexOf(letter));
  };
  return { lhsSpec: spec(lhs, "N", "C"), rhsSpec: spec(rhs, "O", "I"), outSpec: spec(out, "N", "C") };
}
