import { byteSize, type DType } from "../../ir/dtype.js";
import { range } from "../../ir/shape.js";
import type { FunctionBody, Local } from "../wasm/functionBody.js";
import {
  emitLaneStore,
  emitSplatLoad,
  emitVectorLoad,
  emitVectorStore,
  emitWidening,
  STORAGE_BYTES,
  toBit,
  type VectorStorage,
} from "../wasm/vectorStorage.js";

/** How many elements a kernel handles with one vector: two when it touches float64, else four. */
export type LaneCount = 2 | 4;

const storages: { readonly [D in DType]: VectorStorage | "double" } = {
  float32: "word",
  int32: "word",
  uint32: "word",
  bfloat16: "half",
  float16: "half",
  uint16: "half",
  int16: "signedHalf",
  uint8: "byte",
  int8: "signedByte",
  bool: "flag",
  float64: "double",
  complex64: "word",
  complex128: "double",
};

/** The width of an element in memory, and the lane of that width that holds element `k` of a register. */
function laneOf(dtype: DType, k: number): { readonly bits: 8 | 16 | 32 | 64; readonly lane: number } {
  const storage = storages[dtype];
  if (storage === "double") return { bits: 64, lane: k };
  const bits = ({ 1: 8, 2: 16, 4: 32 } as const)[STORAGE_BYTES[storage]];
  return { bits, lane: (32 / bits) * k };
}

/** Pushes a register of consecutive elements `stride` elements apart, beginning at `address + offset` bytes. */
export function emitLoad(
  code: FunctionBody,
  dtype: DType,
  lanes: LaneCount,
  address: Local,
  stride: number,
  offset: number,
): void {
  const storage = storages[dtype];
  if (stride === 1 && storage === "double") {
    code.get(address).memory("v128.load", offset);
  } else if (stride === 1 && lanes === 4 && storage !== "double") {
    code.get(address);
    emitVectorLoad(code, storage, offset);
  } else if (stride === 1 && storage === "word") {
    code.get(address).memory("v128.load64_zero", offset);
  } else {
    const register = code.local("v128");
    emitGather(code, dtype, lanes, register, (k) => {
      const at = offset + k * stride * byteSize(dtype);
      code.get(address);
      if (at !== 0) code.address(at).op("address.add");
    });
  }
}

/** Pushes a register whose element `k` comes from the address that `pushAddress(k)` leaves on the stack. */
export function emitGather(
  code: FunctionBody,
  dtype: DType,
  lanes: LaneCount,
  register: Local,
  pushAddress: (k: number) => void,
): void {
  code.v128([0, 0, 0, 0]).set(register);
  for (const k of range(lanes)) {
    const { bits, lane } = laneOf(dtype, k);
    pushAddress(k);
    code.get(register).laneMemory(`v128.load${bits}_lane`, lane).set(register);
  }
  code.get(register);
  const storage = storages[dtype];
  if (storage !== "double") emitWidening(code, storage);
}

/** Pushes a register with the element at the address on the stack in every lane. */
export function emitSplat(code: FunctionBody, dtype: DType): void {
  const storage = storages[dtype];
  if (storage === "double") code.memory("v128.load64_splat", 0);
  else emitSplatLoad(code, storage, 0);
}

/** Writes a register to elements `stride` apart, beginning at `address + offset` bytes. */
export function emitStore(
  code: FunctionBody,
  dtype: DType,
  lanes: LaneCount,
  address: Local,
  stride: number,
  offset: number,
  value: Local,
): void {
  const storage = storages[dtype];
  if (stride === 1 && storage === "double") {
    code.get(address).get(value).memory("v128.store", offset);
  } else if (stride === 1 && lanes === 4 && storage !== "double") {
    code.get(address).get(value);
    emitVectorStore(code, storage, offset);
  } else if (stride === 1 && storage === "word") {
    code.get(address).get(value).laneMemory("v128.store64_lane", 0, offset);
  } else {
    for (const k of range(lanes)) {
      const { bits, lane } = laneOf(dtype, k);
      const at = offset + k * stride * byteSize(dtype);
      code.get(address);
      if (at !== 0) code.address(at).op("address.add");
      code.get(value);
      if (storage === "flag") toBit(code);
      code.laneMemory(`v128.store${bits}_lane`, lane);
    }
  }
}

/** Writes element 0 of a register to the address in a local. */
export function emitStoreOne(code: FunctionBody, dtype: DType, address: Local, value: Local): void {
  const storage = storages[dtype];
  code.get(address).get(value);
  if (storage === "double") code.laneMemory("v128.store64_lane", 0);
  else emitLaneStore(code, storage);
}
