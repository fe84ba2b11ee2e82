import { expect, test } from "vitest";
import { repeatsChoices } from "./repeatedChoices.js";
import { canRunAway } from "./stoppable.browser.js";

test.each([
  ["GPT-2", "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+"],
  [
    "Llama 3",
    "(?:'[sS]|'[tT]|'[rR][eE])|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+",
  ],
  ["o200k", "[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}]*[\\p{Ll}\\p{Lm}]+(?:'s|'t)?|\\p{N}{1,3}"],
  ["a group that is repeated a few times", "(a|b){1,3}c+"],
  ["a group without choices", "(ab)+"],
  ["signs in a class", "[(|)+*]+"],
  ["escaped signs", "\\(a\\|b\\)+"],
])("the pattern of %s repeats no choice", (_, pattern) => {
  expect(repeatsChoices(pattern)).toBe(false);
  expect(new RegExp(pattern, "gu")).toBeInstanceOf(RegExp);
});

test.each(["(a+)+b", "(a|a)*b", "((a*)b)+", "(?:x{2,})*y", "(a|b){3,}c", "(?:(?:a|b)c)*d", "([ab]+\\d?)+$"])(
  "%s can run away",
  (pattern) => {
    expect(canRunAway(new RegExp(pattern, "gu"))).toBe(true);
  },
);
