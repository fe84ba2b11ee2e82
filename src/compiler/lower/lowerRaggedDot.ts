import { byteSize } from "../../ir/dtype.js";
import { InternalError } from "../../ir/errors.js";
import type { Atom, Eqn } from "../../ir/program.js";
import { at, bytesOf, bytesOfAll, entriesOf, range } from "../../ir/shape.js";
import { refOf, type View } from "../plan/planBuffers.js";
import type { LoweringFrame } from "./frame.js";
import { layout, type MatrixLayout, productType } from "./lowerDot.js";

/** An operand that a GEMM can read, and how its matrices lie. */
interface MatrixOperand extends MatrixLayout {
  readonly view: View;
}

/** The operand in its own layout if a GEMM can read it, otherwise copied. `dims` are its rows and columns. */
function matrixOperand(
  frame: LoweringFrame,
  atom: Atom,
  dims: readonly [row: number, column: number],
): MatrixOperand {
  const how = ({ shape, strides }: View) => {
    const [row, column] = dims;
    return layout(at(shape, row), at(strides, row), at(shape, column), at(strides, column));
  };
  const own = frame.view(atom);
  const asItIs = how(own);
  if (asItIs) return { ...asItIs, view: own };
  const view = frame.dense(atom);
  const copied = how(view);
  if (copied) return { ...copied, view };
  throw new InternalError("[lowerRaggedDot] a dense operand has no layout");
}

/** Emits a product of groups of rows: one step, which reads the sizes of the groups when it runs. */
export function lowerRaggedDot(frame: LoweringFrame, eqn: Eqn<"raggedDot">): void {
  const [x, y, out] = [at(eqn.ins, 0), at(eqn.ins, 1), at(eqn.outs, 0)];
  const rank = x.type.shape.length - 2;
  const isRows = eqn.params.ragged === "rows";
  // Where rows are summed, x is the transposed left factor.
  const a = matrixOperand(frame, x, isRows ? [rank, rank + 1] : [rank + 1, rank]);
  const b = matrixOperand(frame, y, isRows ? [rank + 1, rank + 2] : [rank, rank + 1]);
  const sizes = frame.dense(at(eqn.ins, 2));
  const target = frame.temporary(out);
  const [rows, inputs] = entriesOf(x.type.shape.slice(rank), 2);
  const n = at(y.type.shape, y.type.shape.length - 1);
  const [m, k] = isRows ? [rows, inputs] : [inputs, rows];
  const dtype = productType(x.type.dtype);
  const [factorBytes, resultBytes] = [byteSize(dtype), byteSize(out.type.dtype)];
  const grouped = isRows ? b.view : target;
  const flops = 2 * bytesOf(x.type) * (n / byteSize(x.type.dtype));
  const bytes = bytesOfAll([...eqn.ins, out]);
  frame.steps.push({
    op: "gemm",
    dtype,
    a: refOf(a.view),
    b: refOf(b.view),
    c: refOf(target),
    m,
    n,
    k,
    transposeA: a.transposed,
    transposeB: b.transposed,
    lda: a.leading,
    ldb: b.leading,
    ldc: n,
    alpha: 1,
    beta: 0,
    batch: range(rank).map((d) => ({
      count: at(x.type.shape, d),
      strideA: at(a.view.strides, d) * factorBytes,
      strideB: at(b.view.strides, d) * factorBytes,
      strideC: at(target.strides, d) * resultBytes,
    })),
    ragged: {
      dim: isRows ? "m" : "k",
      groups: at(sizes.shape, rank),
      sizes: refOf(sizes),
      stride: at(grouped.strides, rank) * (isRows ? factorBytes : resultBytes),
    },
    info: frame.compilation.info([eqn.op], eqn.source, flops, bytes),
  });
  frame.define(out, target);
}
