import { readFileSync } from "node:fs";
import { expect, test } from "vitest";
import { TokenizerFields } from "./parts/fields.js";
import { readNormalizer } from "./parts/normalizers.js";
import { parseTokenizer } from "./tokenizerJson.js";

const fixtures = new URL("../../../../test/pretrained/fixtures/tokenizers/", import.meta.url).pathname;

/** What Hugging Face's tokenizers 0.23.2 make of texts with characters that Unicode changed or added since its tables. */
test.each([
  ["BertNormalizer", "a\u1885b\u1734c\u0890d\u0301e\u08e2", "a\u1885bc\u0890de\u08e2"],
  ["BertNormalizer", "\u{105d2}\u0307\u0323 é \u{105c9}", "\u{105d2} e \u{105c9}"],
  ["BertNormalizer", "a\u0345\u1abf\t\ufffd\u200d!", "a\u1abf !"],
  ["StripAccents", "a\u1cf2\u1715\u0301b\u1734c\u0890", "a\u1715bc\u0890"],
  ["NFD", "\u{105d2}\u0307\u0323 é \u{105c9}", "\u{105d2}\u0323\u0307 e\u0301 \u{105c9}"],
  ["NFC", "\u{105d2}\u0307\u0323 e\u0301", "\u{105d2}\u0323\u0307 é"],
  ["NFC", "a\u0345\u1abf", "a\u0345\u1abf"],
  ["NFKC", "\u32ff\u3370\ufb01", "\u32ff24点fi"],
])("%s treats %j as the reference does", (type, text, normalized) => {
  expect(readNormalizer(new TokenizerFields({ type }, "", "test"))(text)).toBe(normalized);
});

test("a letter that became a mark in Unicode 9 stays part of a word for WordPiece", () => {
  const bert = parseTokenizer(readFileSync(`${fixtures}bert.tokenizer.json`, "utf8"));
  expect([...bert.encode("=modules,ʓ>/ᢅu孋 🚀\n中文字符测试 auto,")]).toEqual([
    31, 174, 124, 106, 14, 0, 32, 17, 0, 0, 0, 0, 0, 0, 0, 0, 0, 38, 188, 73, 14,
  ]);
});
