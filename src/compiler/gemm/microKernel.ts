import type { FunctionBody, Local, Signature } from "../wasm/assembler.js";
import type { WasmFeatures } from "../wasm/features.js";
import type { GemmTile } from "./tile.js";

/**
 * How a micro-kernel finds A: `columns` has the rows' elements side by side for each k (packed, or A
 * transposed), `rows` has each row's elements side by side.
 */
export type ALayout = "columns" | "rows";

/** k, a, step of a (bytes from k to k + 1, or from row to row), b, step of b, c, row step of c, alpha, beta. */
export const MICRO_KERNEL_SIGNATURE: Signature = {
  params: ["i32", "i32", "i32", "i32", "i32", "i32", "i32", "f32", "f32"],
  results: [],
};

/** Writes the function that computes `height` rows by two vectors of C over the whole of k. */
export function writeMicroKernel(
  code: FunctionBody,
  height: number,
  layout: ALayout,
  tile: GemmTile,
  features: WasmFeatures,
): void {
  const [k, a, aStep, b, bStep] = [0, 1, 2, 3, 4].map((index) => code.param(index)) as [
    Local,
    Local,
    Local,
    Local,
    Local,
  ];
  const accumulators = Array.from({ length: height }, (): [Local, Local] => [
    code.local("v128"),
    code.local("v128"),
  ]);
  const columns: [Local, Local] = [code.local("v128"), code.local("v128")];
  const element = code.local("v128");

  const loadColumns = (): void => {
    columns.forEach((column, index) => {
      code
        .get(b)
        .memory("v128.load", index * 16)
        .set(column);
    });
    code.get(b).get(bStep).op("i32.add").set(b);
  };
  /** Adds the product of the element on the stack with the two vectors of B to one row. */
  const accumulate = (row: [Local, Local]): void => {
    code.set(element);
    row.forEach((sum, index) => {
      const column = columns[index] ?? columns[0];
      if (features.fma) code.get(element).get(column).get(sum).vector("f32x4.relaxed_madd").set(sum);
      else code.get(sum).get(element).get(column).vector("f32x4.mul").vector("f32x4.add").set(sum);
    });
  };
  const repeat = (vector: Local, lane: number): void => {
    code.get(vector).get(vector).shuffle([lane, lane, lane, lane]);
  };

  if (layout === "columns") {
    const quads =
      tile.broadcast === "lane" && height % 4 === 0
        ? Array.from({ length: height / 4 }, () => code.local("v128"))
        : undefined;
    const step = (): void => {
      loadColumns();
      quads?.forEach((quad, index) => {
        code
          .get(a)
          .memory("v128.load", index * 16)
          .set(quad);
      });
      accumulators.forEach((row, index) => {
        const quad = quads?.[index >> 2];
        if (quad === undefined) code.get(a).memory("v128.load32_splat", index * 4);
        else repeat(quad, index & 3);
        accumulate(row);
      });
      code.get(a).get(aStep).op("i32.add").set(a);
    };
    countDown(code, k, 2, () => {
      step();
      step();
    });
    countDown(code, k, 1, step);
  } else {
    const pointers = accumulators.map((_, index) => {
      const pointer = code.local("i32");
      code.get(a).get(aStep).i32(index).op("i32.mul").op("i32.add").set(pointer);
      return pointer;
    });
    const quads = accumulators.map(() => code.local("v128"));
    const lane = tile.broadcast === "lane";
    countDown(code, k, 4, () => {
      if (lane) {
        quads.forEach((quad, index) => {
          code
            .get(pointers[index] ?? a)
            .memory("v128.load")
            .set(quad);
        });
      }
      for (let inner = 0; inner < 4; inner++) {
        loadColumns();
        accumulators.forEach((row, index) => {
          if (lane) repeat(quads[index] ?? element, inner);
          else code.get(pointers[index] ?? a).memory("v128.load32_splat", inner * 4);
          accumulate(row);
        });
      }
      for (const pointer of pointers) code.increment(pointer, 16);
    });
    countDown(code, k, 1, () => {
      loadColumns();
      accumulators.forEach((row, index) => {
        code.get(pointers[index] ?? a).memory("v128.load32_splat");
        accumulate(row);
      });
      for (const pointer of pointers) code.increment(pointer, 4);
    });
  }
  writeBack(code, accumulators);
}

/** C = alpha · sum + beta · C; C is not read when beta is 0, so that it may hold anything. */
function writeBack(code: FunctionBody, accumulators: readonly (readonly [Local, Local])[]): void {
  const c = code.param(5);
  const cStep = code.param(6);
  const alpha = code.local("v128");
  const beta = code.local("v128");
  const store = (add: boolean): void => {
    for (const row of accumulators) {
      row.forEach((sum, index) => {
        code.get(c).get(sum).get(alpha).vector("f32x4.mul");
        if (add) {
          code
            .get(c)
            .memory("v128.load", index * 16)
            .get(beta)
            .vector("f32x4.mul")
            .vector("f32x4.add");
        }
        code.memory("v128.store", index * 16);
      });
      code.get(c).get(cStep).op("i32.add").set(c);
    }
  };
  code.get(code.param(7)).vector("f32x4.splat").set(alpha);
  code.get(code.param(8)).vector("f32x4.splat").set(beta);
  code.get(code.param(8)).f32(0).op("f32.ne");
  code.if(
    () => store(true),
    () => store(false),
  );
}

/** While at least `step` are left in a counter: the body, then counting down by `step`. */
export function countDown(code: FunctionBody, left: Local, step: number, body: () => void): void {
  code
    .get(left)
    .i32(step)
    .op("i32.ge_s")
    .if(() => {
      code.loop((next) => {
        body();
        code.get(left).i32(step).op("i32.sub").tee(left).i32(step).op("i32.ge_s").brIf(next);
      });
    });
}
