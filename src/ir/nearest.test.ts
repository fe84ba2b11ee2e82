import { describe, expect, test } from "vitest";
import { nearest } from "./nearest.js";

const fields = ["b1", "eps", "learningRate", "weightDecay", "clip", "numHeads", "numKvHeads"];
const paths = ["steps", "seed", "model.width", "model.numHeads", "optimizer.clip", "optimizer.learningRate"];

describe("the nearest option", () => {
  test.each([
    ["lerningRate", "learningRate"],
    ["learning_rate", "learningRate"],
    ["lr", "learningRate"],
    ["WD", "weightDecay"],
    ["rate", "learningRate"],
    ["heads", "numHeads"],
    ["ep", "eps"],
    ["zz", undefined],
    ["x", undefined],
    ["", undefined],
  ])("of %o is %o", (word, option) => {
    expect(nearest(word, fields)).toBe(option);
  });

  test.each([
    ["optimizer.lr", "optimizer.learningRate"],
    ["lr", "optimizer.learningRate"],
    ["width", "model.width"],
    ["modle.width", "model.width"],
    ["model.heads", "model.numHeads"],
    ["optimizer.xyz", undefined],
    ["stepz", "steps"],
  ])("of %o is %o, among groups", (word, option) => {
    expect(nearest(word, paths)).toBe(option);
  });
});
