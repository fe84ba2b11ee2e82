import { afterAll, describe, expect, it } from "vitest";
import { blas, describeWith, koffi, testWith } from "../../../test/support/optional.js";
import { nativeAddress, releaseNativeAddress } from "../system/nativeAddress.js";
import { findBlas } from "./blas.js";

const memory = new WebAssembly.Memory({ initial: 1, maximum: 4, shared: true });
afterAll(() => releaseNativeAddress(memory));

describe("findBlas", () => {
  it("finds nothing when told so", () => {
    expect(findBlas("none")).toBeUndefined();
  });

  testWith(koffi, "says what to do about a library that is none", {}, () => {
    expect(() => findBlas("/no/such/libblas.so")).toThrow(
      /SHARDWISE_BLAS=\/no\/such\/libblas.so .*full path/,
    );
  });

  testWith(blas, "takes the library it is given", {}, ({ path, name }) => {
    expect(findBlas(path)?.name).toBe(name);
  });
});

describe("nativeAddress", () => {
  it("refuses memories that could move", () => {
    expect(() => nativeAddress(new WebAssembly.Memory({ initial: 1 }))).toThrow(/shared/);
  });
});

describeWith(blas, "a system BLAS", (library) => {
  const base = nativeAddress(memory);

  it("multiplies float32 matrices of every orientation in place", () => {
    const data = new Float32Array(memory.buffer);
    const [a, b] = [
      [1, 2, 3, 4, 5, 6],
      [7, 8, 9, 10, 11, 12],
    ];
    data.set(a ?? [], 0);
    data.set(b ?? [], 16);
    const product = (transA: boolean, transB: boolean): number[] => {
      const [lda, ldb] = [transA ? 2 : 3, transB ? 3 : 2];
      library.sgemm(transA, transB, 2, 2, 3, 1, base, lda, base + 64, ldb, 0, base + 128, 2);
      return [...data.slice(32, 36)];
    };
    expect(product(false, false)).toEqual([58, 64, 139, 154]);
    expect(product(false, true)).toEqual([50, 68, 122, 167]);
    expect(product(true, false)).toEqual([89, 98, 116, 128]);
    expect(product(true, true)).toEqual([76, 103, 100, 136]);
  });

  it("multiplies float64 matrices and adds to C", () => {
    const data = new Float64Array(memory.buffer);
    data.set([1, 2, 3, 4, 5, 6, 7, 8, 1, 1, 1, 1], 64);
    const [a, b, c] = [base + 512, base + 544, base + 576];
    library.dgemm(false, false, 2, 2, 2, 0.5, a, 2, b, 2, 2, c, 2);
    expect([...data.slice(72, 76)]).toEqual([11.5, 13, 23.5, 27]);
  });

  it("warms up", () => {
    expect(() => library.warmUp()).not.toThrow();
  });
});
