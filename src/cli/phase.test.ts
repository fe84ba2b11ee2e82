import { expect, test } from "vitest";
import { phase } from "./phase.js";

test("a phase is a line of a terminal that the next one replaces, and nothing elsewhere", () => {
  for (const isTTY of [true, false]) {
    let written = "";
    const stream = { isTTY, write: (text: string) => (written += text) };
    phase("compiling", stream);
    phase("running", stream);
    phase("", stream);
    expect(written).toBe(isTTY ? "\r\x1b[2Kcompiling …\r\x1b[2Krunning …\r\x1b[2K" : "");
  }
});
