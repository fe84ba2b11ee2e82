/** Fields of messages in the encoding of protocol buffers, as bytes: a key of number and kind, then the value. */

/** An integer in groups of 7 bits, the lowest first; negative ones as 64 bits. */
export function varint(value: number | bigint): number[] {
  const digits: number[] = [];
  let rest = BigInt.asUintN(64, BigInt(value));
  for (; rest > 127n; rest >>= 7n) digits.push(Number(rest & 127n) | 128);
  return [...digits, Number(rest)];
}

const field = (number: number, kind: number, value: Iterable<number>) => [
  ...varint(number * 8 + kind),
  ...value,
];

/** An integer or a flag. */
export const integer = (number: number, value: number | bigint) => field(number, 0, varint(value));

/** A message, or numbers one after the other. */
export const bytes = (number: number, value: readonly number[]) =>
  field(number, 2, [...varint(value.length), ...value]);

/** A string. */
export const text = (number: number, value: string) => bytes(number, [...new TextEncoder().encode(value)]);

/** A float of 64 bits. */
export const double = (number: number, value: number) =>
  field(number, 1, new Uint8Array(Float64Array.of(value).buffer));

/** A float of 32 bits. */
export const float = (number: number, value: number) =>
  field(number, 5, new Uint8Array(Float32Array.of(value).buffer));
