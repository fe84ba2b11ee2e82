/**
 * Texts that are almost equal, by MinHash: a text is the set of its runs of five words, and 64 hash functions each keep
 * the smallest hash of the set. Two texts agree in as many of them as their sets have in common, on average. Texts are
 * compared if four hashes in a row agree at one of 16 places, which finds nearly all that have 80 % in common.
 */
import { at } from "../../../ir/shape.js";
import { mix } from "./permute.js";

const numHashes = 64;
const bandSize = 4;
const shingleWords = 5;

/** The share of common hashes from which on texts count as near duplicates. */
export const nearShare = 0.8;

const seeds = Array.from({ length: numHashes }, (_, i) => mix(i + 1));

/** The words of a text without case and punctuation. */
function wordsOf(text: string): string[] {
  return text.toLowerCase().match(/[\p{L}\p{N}]+/gu) ?? [];
}

/** The hash of a string, 32 bits. */
function hashOf(text: string): number {
  let hash = 0x811c9dc5;
  for (let i = 0; i < text.length; i++) hash = Math.imul(hash ^ text.charCodeAt(i), 0x01000193);
  return mix(hash);
}

/** The signature of a text; undefined if it has no words. */
export function signatureOf(text: string): Uint32Array | undefined {
  const words = wordsOf(text);
  if (words.length === 0) return undefined;
  const signature = new Uint32Array(numHashes).fill(0xffffffff);
  const numShingles = Math.max(1, words.length - shingleWords + 1);
  for (let start = 0; start < numShingles; start++) {
    const shingle = hashOf(words.slice(start, start + shingleWords).join(" "));
    for (let i = 0; i < numHashes; i++) {
      const hash = mix(shingle ^ at(seeds, i));
      if (hash < (signature[i] ?? 0)) signature[i] = hash;
    }
  }
  return signature;
}

/** The share of hashes that two signatures have in common. */
export function similarity(a: Uint32Array, b: Uint32Array): number {
  let same = 0;
  for (let i = 0; i < numHashes; i++) if (a[i] === b[i]) same++;
  return same / numHashes;
}

/** Finds for each text that is added an earlier one that is nearly equal. */
export class NearDuplicates {
  private readonly signatures: (Uint32Array | undefined)[] = [];
  /** The first texts with the same hashes at a place. */
  private readonly bands = new Map<string, number>();

  /** Adds a text. @returns the ordinal of an earlier one and what they have in common */
  add(text: string): { readonly of: number; readonly share: number } | undefined {
    const signature = signatureOf(text);
    const index = this.signatures.push(signature) - 1;
    if (!signature) return undefined;
    let best: { of: number; share: number } | undefined;
    for (let band = 0; band < numHashes; band += bandSize) {
      const key = `${band}:${signature.subarray(band, band + bandSize).join(",")}`;
      const of = this.bands.get(key);
      if (of === undefined) this.bands.set(key, index);
      else {
        const other = this.signatures[of];
        const share = other ? similarity(signature, other) : 0;
        if (share >= nearShare && share > (best?.share ?? 0)) best = { of, share };
      }
    }
    return best;
  }
}
