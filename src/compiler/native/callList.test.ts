import { expect, it } from "vitest";
import { bothOf, codeMemory, describeWith, koffi as koffiPackage } from "../../../test/support/optional.js";
import { bindCode } from "../../engines/system/codeMemory.js";
import { CALL_WORDS, writeCallList } from "./callList.js";
import { writeLookLoop } from "./lookLoop.js";

const code = [writeCallList(process.arch), writeLookLoop(process.arch)].filter((one) => one !== undefined);

describeWith(bothOf(codeMemory, koffiPackage), "native code that calls functions", ([memory, koffi]) => {
  /** Calls functions of the C library one after the other. @returns what the last one gave */
  function callAll(calls: readonly (readonly [name: string, ...args: (number | Uint8Array)[]])[]): number {
    const libc = koffi.load(null);
    const list = new BigUint64Array(new SharedArrayBuffer(8 * CALL_WORDS * calls.length));
    calls.forEach(([name, ...args], i) => {
      const values = args.map((arg) => (typeof arg === "number" ? BigInt(arg) : koffi.address(arg)));
      list.set([koffi.address(libc.symbol(name)), ...values], CALL_WORDS * i);
    });
    const flag = new Int32Array(new SharedArrayBuffer(16));
    const [at = 0] = memory.load(code);
    bindCode(koffi, at, 3)(Number(koffi.address(list)), calls.length, Number(koffi.address(flag)));
    return flag[2] ?? 0;
  }

  const bytes = (text: string) => {
    const shared = new Uint8Array(new SharedArrayBuffer(64));
    shared.set(Buffer.from(`${text}\0`));
    return shared;
  };
  const text = (shared: Uint8Array) => Buffer.from(shared.slice()).toString().split("\0")[0];

  it("hands over seven arguments", () => {
    const target = bytes("");
    const printed = "1, 22, 333 and 4444";
    const format = bytes("%d, %d, %d and %d");
    const print = ["snprintf", target, 64, format, 1, 22, 333, 4444] as const;
    expect(callAll([["memcmp", format, format, 3], print])).toBe(printed.length);
    expect(text(target)).toBe(printed);
  });

  it("stops where one gives something else than 0", () => {
    const target = bytes("before");
    const differ = ["memcmp", bytes("b"), bytes("a"), 1] as const;
    expect(callAll([differ, ["snprintf", target, 64, bytes("after")]])).toBeGreaterThan(0);
    expect(text(target)).toBe("before");
  });
});
