/** Addresses of memories, as kernels and JavaScript represent them. */

/**
 * The type of a memory's addresses: 32 bits reach 4 GiB, 64 bits further where the host supports such memories.
 *
 * JavaScript represents addresses as numbers: if they have 64 bits, parameters of exported functions and addresses that
 * it writes into the memory are float64.
 */
export type AddressType = "i32" | "i64";

/** The bytes of an address that JavaScript has written into the memory. */
export const ADDRESS_BYTES: { readonly [T in AddressType]: 4 | 8 } = { i32: 4, i64: 8 };

/** Addresses as JavaScript writes them into a memory; it reads and writes numbers either way. */
export type Addresses = Uint32Array | Float64Array;

/** Some addresses in the form that kernels read. */
export function newAddresses(addressType: AddressType, values: readonly number[]): Addresses {
  return addressType === "i32" ? Uint32Array.from(values) : Float64Array.from(values);
}

/** The addresses that lie in a memory. */
export function viewAddresses(
  addressType: AddressType,
  memory: ArrayBufferLike,
  at: number,
  count: number,
): Addresses {
  return addressType === "i32" ? new Uint32Array(memory, at, count) : new Float64Array(memory, at, count);
}

/** The most pages of 64 KiB that a memory with addresses of a type can have. */
export const MAX_PAGES: { readonly [T in AddressType]: number } = { i32: 65536, i64: 262144 };
