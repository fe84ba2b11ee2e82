import { readFileSync } from "node:fs";
import { expect, it } from "vitest";
import { exported } from "../scripts/coverage/exports.js";
import { type Library, libraries } from "../scripts/coverage/libraries.js";
import { coveragePage, standings } from "../scripts/coverage/page.js";

it("docs/jax.md lists what is exported today (npm run coverage writes it)", () => {
  const page = readFileSync(new URL("../docs/jax.md", import.meta.url), "utf8");
  expect(page).toBe(coveragePage(libraries, exported));
});

const library: Library = {
  title: "jax.numpy",
  prefix: "jnp",
  module: "shardwise",
  ours: "np",
  names: "take_along_axis float8 nothing_such ndim",
  renamed: { ndim: "Tensor.ndim" },
  leftOut: { float8: "no engine computes with it" },
};

it("finds names in camelCase, renamed, left out, and missing", () => {
  expect(standings(library, exported)).toEqual([
    { name: "take_along_axis", state: "present", ours: "np.takeAlongAxis" },
    { name: "float8", state: "left out", reason: "no engine computes with it" },
    { name: "nothing_such", state: "missing" },
    { name: "ndim", state: "present", ours: "Tensor.ndim" },
  ]);
});

it("refuses tables that contradict the exports", () => {
  const wrong = (change: Partial<Library>) => () => standings({ ...library, ...change }, exported);
  expect(wrong({ renamed: { ndim: "Tensor.rank" } })).toThrow("ndim is Tensor.rank, which is not exported");
  expect(wrong({ leftOut: { take_along_axis: "no" } })).toThrow(
    "take_along_axis is left out, but np.takeAlongAxis exists",
  );
  expect(wrong({ leftOut: { sin: "no" } })).toThrow("sin is renamed or left out, but not in the list");
  expect(wrong({ names: "ndim float8 sin sin" })).toThrow("twice");
});
