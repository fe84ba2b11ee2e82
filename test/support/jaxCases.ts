/** Functions beside JAX's results and gradients for them, which the scripts in `test/jax` wrote. */
import { readFileSync } from "node:fs";
import { grad, jit, lax, Mesh, NamedSharding, np, P, Tensor, tree, vmap } from "shardwise";
import { describe, expect, test } from "vitest";
import { isDType } from "../../src/ir/dtype.js";
import { expectNear } from "./near.js";

/** A function of tensors to a tree of them. */
export type CaseFunction = (...args: Tensor[]) => unknown;

/** A case of a function of one tensor. */
export const one =
  (fn: (x: Tensor) => unknown): CaseFunction =>
  (x) =>
    x && fn(x);

/** A case of a function of two tensors. */
export const two =
  (fn: (x: Tensor, y: Tensor) => unknown): CaseFunction =>
  (x, y) =>
    x && y && fn(x, y);

/** How the cases of a file are compared. */
export interface CaseOptions {
  /** Relative to the larger of `least` and the wanted element. */
  readonly tolerance: number;
  /** 1 by default; less for functions that are precise where they are tiny. */
  readonly least?: number;
  /** Cases that lose more digits, with what they are allowed. */
  readonly tolerances?: Readonly<Record<string, number>>;
  /** The cases that are differentiated and in turn mapped or split every day; `CASES=all` does all with all. */
  readonly everyday: readonly string[];
  /** Cases that run only with `CASES=all`: variants of others that take long. */
  readonly occasional?: readonly string[];
}

interface Leaf {
  readonly dtype: string;
  readonly shape: readonly number[];
  readonly data: readonly (number | string | null)[];
}

interface Golden {
  readonly args: readonly Leaf[];
  readonly results: readonly Leaf[];
  readonly gradients: readonly Leaf[];
}

const numbersOf = ({ data }: Leaf) =>
  data.map((e) => {
    if (typeof e === "number") return e;
    if (e === null) return Number.NaN;
    return e === "inf" ? Number.POSITIVE_INFINITY : Number.NEGATIVE_INFINITY;
  });

function tensorOf(leaf: Leaf): Tensor {
  if (!isDType(leaf.dtype)) throw new Error(`no data type: ${leaf.dtype}`);
  if (leaf.dtype === "complex64") {
    const [real, imag] = [0, 1].map((k) => np.array(numbersOf(leaf).filter((_, i) => i % 2 === k)));
    return real && imag ? lax.complex(real, imag).reshape([...leaf.shape]) : np.array([]);
  }
  return np.array(numbersOf(leaf), leaf.dtype).reshape([...leaf.shape]);
}

const tensorsOf = (value: unknown) =>
  tree.leaves(value).filter((leaf): leaf is Tensor => leaf instanceof Tensor);

const isFloat = ({ dtype }: Tensor) => dtype.includes("float") || dtype === "complex64";

/** A sum of all results, each element weighed differently. */
function weighed(value: unknown): Tensor {
  const parts = tensorsOf(value)
    .filter(isFloat)
    .map((x) => {
      const turns = np.arange(x.size, "float32").reshape([...x.shape]);
      const real = np.sum(x.real.astype("float32").mul(np.cos(turns)));
      return np.iscomplexobj(x) ? real.add(np.sum(x.imag.mul(np.sin(turns.add(1))))) : real;
    });
  return parts.reduce((sum, part) => sum.add(part), np.array(0));
}

function gradients(fn: CaseFunction, args: readonly Tensor[]): Tensor[] {
  const floats = args.flatMap((x, i) => (isFloat(x) ? [i] : []));
  const lossOf = (some: readonly Tensor[]) => {
    const rest = some.values();
    return weighed(fn(...args.map((x) => (isFloat(x) ? (rest.next().value ?? x) : x))));
  };
  return [...grad(lossOf)(floats.flatMap((i) => args[i] ?? []))];
}

/** Compares every case of a file op by op, and compiled with gradients over a batch and on a mesh. */
export function describeJaxCases(
  file: string,
  cases: Readonly<Record<string, CaseFunction>>,
  options: CaseOptions,
): void {
  const golden: Readonly<Record<string, Golden>> = JSON.parse(
    readFileSync(new URL(`../jax/${file}`, import.meta.url), "utf8"),
  );
  const names = Object.keys(cases);
  const isFull = process.env.CASES === "all";
  const [mapped, split] = [0, 1].map((turn) =>
    isFull ? names : options.everyday.filter((_, i) => i % 2 === turn),
  ) as [string[], string[]];
  const plain = isFull ? names : names.filter((name) => !options.occasional?.includes(name));
  // A machine that does other things beside takes several times as long.
  const patience = isFull ? 1_800_000 : 240_000;
  const goldenOf = (name: string) => golden[name] ?? { args: [], results: [], gradients: [] };
  const inputsOf = (list: readonly string[]) => list.map((name) => goldenOf(name).args.map(tensorOf));
  const run = (list: readonly string[], args: readonly (readonly Tensor[])[], differentiate: boolean) =>
    list.map((name, i) => {
      const fn = cases[name] ?? (() => null);
      const own = args[i] ?? [];
      const wanted = differentiate && goldenOf(name).gradients.length > 0;
      return { results: tensorsOf(fn(...own)), gradients: wanted ? gradients(fn, own) : [] };
    });
  const check = async (name: string, got: readonly Tensor[], want: readonly Leaf[], what: string) => {
    expect(
      got.map(({ shape }) => shape),
      `shapes of the ${what} of ${name}`,
    ).toEqual(want.map(({ shape }) => shape));
    expect(
      got.map(({ dtype }) => dtype),
      `types of the ${what} of ${name}`,
    ).toEqual(want.map(({ dtype }) => dtype));
    const tolerance = options.tolerances?.[name] ?? options.tolerance;
    for (const [i, tensor] of got.entries()) {
      const values = [...(await tensor.data())].map(Number);
      const wanted = want[i];
      if (wanted) expectNear(values, numbersOf(wanted), tolerance, `${what} ${i} of ${name}`, options.least);
    }
  };
  /** Runs the checks of all cases before it fails, so that one run tells all that is wrong. */
  const checkEach = async (list: readonly string[], checkOne: (name: string, i: number) => Promise<void>) => {
    const failures: string[] = [];
    for (const [i, name] of list.entries()) {
      await checkOne(name, i).catch((error: Error) => failures.push(error.message));
    }
    if (failures.length > 0) expect.fail(failures.join("\n"));
  };
  const checkAll = (list: readonly string[], all: ReturnType<typeof run>) =>
    checkEach(list, async (name, i) => {
      await check(name, all[i]?.results ?? [], goldenOf(name).results, "results");
      await check(
        name,
        all[i]?.gradients ?? [],
        all[i]?.gradients.length ? goldenOf(name).gradients : [],
        "gradients",
      );
    });

  describe(`agrees with JAX (${file})`, () => {
    test("all cases are there", () => {
      expect([...names].sort()).toEqual(Object.keys(golden).sort());
    });

    test(
      "op by op",
      async () => {
        await checkAll(plain, run(plain, inputsOf(plain), false));
      },
      patience,
    );

    test(
      "mapped over a batch, with gradients",
      async () => {
        const other = (x: Tensor) => (x.shape.length > 0 ? np.roll(x, 1, 0) : x);
        const batch = inputsOf(mapped).map((args) => args.map((x) => np.stack([other(x), x])));
        const all = jit((args: readonly (readonly Tensor[])[]) =>
          mapped.map((name, i) => {
            const fn = cases[name] ?? (() => null);
            const wanted = goldenOf(name).gradients.length > 0;
            const both = (...own: Tensor[]) => ({
              results: tensorsOf(fn(...own)),
              gradients: wanted ? gradients(fn, own) : [],
            });
            return vmap(both)(...(args[i] ?? []));
          }),
        )(batch);
        const second = (list: readonly Tensor[] | undefined) => (list ?? []).map((x) => x.get(1));
        await checkEach(mapped, async (name, i) => {
          await check(name, second(all[i]?.results), goldenOf(name).results, "mapped results");
          await check(name, second(all[i]?.gradients), goldenOf(name).gradients, "mapped gradients");
        });
      },
      patience,
    );

    test(
      "split over two devices, with gradients",
      async () => {
        const mesh = Mesh.create({ x: 2 });
        const splitOf = ({ shape }: Leaf) => {
          const dim = shape.findIndex((n) => n % 2 === 0 && n > 0);
          return new NamedSharding(mesh, P(...shape.map((_, d) => (d === dim ? "x" : null))));
        };
        const shardings = split.map((name) => goldenOf(name).args.map(splitOf));
        const onMesh = jit((args: readonly (readonly Tensor[])[]) => run(split, args, true), {
          inShardings: [shardings],
        });
        await checkAll(split, onMesh(inputsOf(split)));
      },
      patience,
    );
  });
}
