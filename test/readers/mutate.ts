/** Changes inputs of readers: as trees of JSON, as words of a text, and as bytes. */
import type { Random } from "../compiler/randomProgram.js";

/** Where the text of a format is, mostly JSON, and how a file is made of it again. */
export interface Envelope {
  /** The text in a file; undefined if there is none. */
  open(bytes: Uint8Array): string | undefined;
  /** The file with another text, whose lengths and checksums are right. */
  close(text: string, bytes: Uint8Array): Uint8Array;
}

type Tree = unknown;

const values: readonly Tree[] = [
  ...[null, true, false, "", "x", [], {}, [[]], 0, -0, 1, -1, 2, 0.5, -1.5, 3, 7, 16, 255, 256],
  ...[
    65535,
    2 ** 31 - 1,
    2 ** 31,
    -(2 ** 31),
    2 ** 32,
    2 ** 52,
    2 ** 53,
    2 ** 60,
    1e21,
    1e308,
    -1e308,
    5e-324,
  ],
  ...[
    "0",
    "-1",
    "NaN",
    "Infinity",
    "__proto__",
    "constructor",
    "toString",
    "\u0000",
    "\ud800",
    "é",
    "a".repeat(300),
  ],
  ...["../../etc/passwd", "/", "\\", "(a+)+$", "[", "(?<a>", "\n", "%s", "float32", "bfloat16", "null"],
];

/** One of a corpus, changed. */
export function mutate(random: Random, envelope: Envelope, base: Uint8Array, other: Uint8Array): Uint8Array {
  const kind = random.next();
  if (kind < 0.6) {
    const [own, second] = [treeIn(envelope, base), treeIn(envelope, other)];
    if (own !== undefined) {
      let tree = own.tree;
      for (let left = 1 + random.below(3); left > 0; left--) tree = changeTree(random, tree, second?.tree);
      return envelope.close(jsonOf(tree), base);
    }
  }
  const text = kind < 0.85 ? envelope.open(base) : undefined;
  if (text === undefined) return changeBytes(random, base, other);
  return envelope.close(changeWords(random, text, envelope.open(other) ?? ""), base);
}

/** The trees of inputs, which are changed again and again. */
const trees = new WeakMap<Uint8Array, { readonly tree: Tree } | undefined>();

function treeIn(envelope: Envelope, bytes: Uint8Array): { readonly tree: Tree } | undefined {
  if (!trees.has(bytes)) trees.set(bytes, parsed(envelope.open(bytes)));
  return trees.get(bytes);
}

function parsed(text: string | undefined): { readonly tree: Tree } | undefined {
  try {
    return text === undefined ? undefined : { tree: JSON.parse(text) };
  } catch {
    return undefined;
  }
}

function jsonOf(tree: Tree): string {
  return JSON.stringify(tree, (_, value) => (Object.is(value, -0) ? 0 : value)) ?? "null";
}

const isObject = (tree: Tree): tree is Record<string, Tree> =>
  typeof tree === "object" && tree !== null && !Array.isArray(tree);

/** Changes one node of a tree, which is chosen on the way down. */
function changeTree(random: Random, tree: Tree, other: Tree): Tree {
  if (typeof tree !== "object" || tree === null || random.chance(0.15))
    return changeNode(random, tree, other);
  if (Array.isArray(tree)) {
    if (tree.length === 0) return [random.pick(values)];
    const place = random.below(tree.length);
    return tree.map((child, i) => (i === place ? changeTree(random, child, other) : child));
  }
  const entries = Object.entries(tree);
  if (entries.length === 0) return { [String(random.pick(values))]: random.pick(values) };
  const place = random.below(entries.length);
  return fromEntries(
    entries.map(([key, child], i) => [key, i === place ? changeTree(random, child, other) : child]),
  );
}

function changeNode(random: Random, tree: Tree, other: Tree): Tree {
  const kind = random.below(8);
  if (kind === 0) return random.pick(values);
  if (kind === 1) return someNode(random, other);
  if (typeof tree === "number") return changeNumber(random, tree);
  if (typeof tree === "string") return changeWords(random, tree, String(random.pick(values)));
  if (Array.isArray(tree)) return changeList(random, tree, other);
  if (isObject(tree)) return changeFields(random, tree, other);
  return kind === 2 ? nested(random, tree) : random.pick(values);
}

function nested(random: Random, tree: Tree): Tree {
  let result = tree;
  for (let left = random.pick([1, 3, 40, 400]); left > 0; left--)
    result = random.chance(0.5) ? [result] : { x: result };
  return result;
}

function changeNumber(random: Random, number: number): number {
  const changed = random.pick([
    number + 1,
    number - 1,
    -number,
    number * 2,
    number / 2,
    number * 1e6,
    number + 2 ** 32,
  ]);
  return Number.isFinite(changed) ? changed : 0;
}

function changeList(random: Random, list: readonly Tree[], other: Tree): Tree {
  const [place, second] = [random.below(list.length + 1), random.below(list.length + 1)];
  switch (random.below(6)) {
    case 0:
      return list.toSpliced(place, 1);
    case 1:
      return list.toSpliced(place, 0, list[second]);
    case 2:
      return list.toSpliced(place, 0, someNode(random, other));
    case 3:
      return [...list].reverse();
    case 4:
      return list.slice(0, place);
    default:
      return Array.from({ length: random.pick([2, 10, 300]) }, () => list)
        .flat()
        .slice(0, 1000);
  }
}

function changeFields(random: Random, tree: Record<string, Tree>, other: Tree): Tree {
  const entries = Object.entries(tree);
  const place = random.below(entries.length + 1);
  const [key = "x", value] = entries[place] ?? [];
  switch (random.below(5)) {
    case 0:
      return fromEntries(entries.toSpliced(place, 1));
    case 1:
      return fromEntries(entries.toSpliced(place, 1, [String(random.pick(values)), value]));
    case 2:
      return fromEntries([...entries, [String(random.pick(values)), value]]);
    case 3:
      return fromEntries([
        ...entries.slice(0, place),
        [key, someNode(random, other)],
        ...entries.slice(place + 1),
      ]);
    default:
      return isObject(other) ? fromEntries([...entries, ...Object.entries(other)]) : nested(random, tree);
  }
}

/** Keys such as `__proto__` become fields, as they do in parsed JSON. */
function fromEntries(entries: readonly (readonly [string, Tree])[]): Record<string, Tree> {
  const result: Record<string, Tree> = {};
  for (const [key, value] of entries)
    Object.defineProperty(result, key, { value, enumerable: true, writable: true, configurable: true });
  return result;
}

function someNode(random: Random, tree: Tree): Tree {
  let node = tree;
  while (typeof node === "object" && node !== null && random.chance(0.7)) {
    const children: readonly Tree[] = Object.values(node);
    if (children.length === 0) break;
    node = random.pick(children);
  }
  return node;
}

const words = /[A-Za-z_]+|\d+|\s+|./gsu;

function changeWords(random: Random, text: string, other: string): string {
  const own = text.match(words) ?? [""];
  const theirs = other.match(words) ?? ["x"];
  for (let left = 1 + random.below(3); left > 0; left--) {
    const place = random.below(own.length + 1);
    const length = random.pick([1, 1, 2, 5, 20]);
    const from = random.below(theirs.length);
    switch (random.below(6)) {
      case 0:
        own.splice(place, length);
        break;
      case 1:
        own.splice(place, 0, ...theirs.slice(from, from + length));
        break;
      case 2:
        own.splice(place, length, ...theirs.slice(from, from + length));
        break;
      case 3:
        own.splice(place, 1, String(random.pick(values)));
        break;
      case 4:
        own.splice(place, 0, ...own.slice(place, place + length));
        break;
      default:
        own.splice(place, length, ...own.slice(place, place + length).reverse());
    }
  }
  return own.join("").slice(0, MAX_BYTES);
}

/** Inputs stay below this, so that none is slow for its size alone. */
export const MAX_BYTES = 2 ** 16;

function changeBytes(random: Random, base: Uint8Array, other: Uint8Array): Uint8Array {
  let bytes = Array.from(base);
  for (let left = 1 + random.below(4); left > 0; left--) {
    const place = random.below(bytes.length + 1);
    const length = random.pick([1, 2, 4, 8, 32]);
    switch (random.below(6)) {
      case 0:
        bytes[place] = (bytes[place] ?? 0) ^ (1 << random.below(8));
        break;
      case 1:
        bytes.splice(place, length);
        break;
      case 2:
        bytes.splice(place, length, ...Array.from({ length }, () => random.pick([0, 1, 127, 128, 255])));
        break;
      case 3:
        bytes.splice(place, 0, ...other.subarray(place, place + length));
        break;
      case 4:
        bytes = bytes.slice(0, place);
        break;
      default:
        bytes.splice(place, 1, random.below(256));
    }
  }
  return Uint8Array.from(bytes.slice(0, MAX_BYTES));
}
