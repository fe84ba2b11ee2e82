import { at, range, tensorType } from "../../../ir/shape.js";
import { ranked } from "./reductions.js";
import { type HloValue, names, type Rule, signature, type Writer } from "./writer.js";

const bool = tensorType("bool", []);

/** Compares by the first key, and by each further key if the earlier ones tie. */
function lexicographic(pairs: readonly (readonly [HloValue, HloValue])[], write: Writer): HloValue {
  return pairs
    .map(([x, y]) => ranked(x, y, "LT", "LT", write))
    .reduceRight((later, { before, equal }) => {
      const tied = write.same("stablehlo.and", [equal, later.before], bool);
      return { before: write.same("stablehlo.or", [before, tied], bool), equal };
    }).before;
}

/** The lowering rule of `sort`. */
export const sortRules: { readonly [K in "sort"]: Rule<K> } = {
  sort: (eqn, write) => {
    const { dim, numKeys } = eqn.params;
    const operands = eqn.ins.map((atom) => write.read(atom));
    const outs = operands.map(({ type }) => type);
    const { target, values } = write.several(outs);
    write.line(
      `${target}"stablehlo.sort"(${names(operands)}) <{dimension = ${dim} : i64, is_stable = true}> ({`,
    );
    const scalars = operands.flatMap(({ type }) => {
      const scalar = tensorType(type.dtype, []);
      return [scalar, scalar];
    });
    write.region(scalars, (...pairs) => [
      lexicographic(
        range(numKeys).map((k) => [at(pairs, 2 * k), at(pairs, 2 * k + 1)]),
        write,
      ),
    ]);
    write.line(`}) : ${signature(operands, outs)}`);
    return values;
  },
};
