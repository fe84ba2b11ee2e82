import { GEMM_SCRATCH_BYTES } from "../../compiler/gemm/blockedGemm.js";
import { COLLECTIVE_SCRATCH_BYTES } from "../collectives/collectiveWork.js";

/** Where the parts of a device's scratch memory begin; it lies below its heap and belongs to no buffer. */
export const SCRATCH = {
  collectives: 0,
  gemm: COLLECTIVE_SCRATCH_BYTES,
} as const;

/** The size of a device's scratch memory. */
export const SCRATCH_BYTES = COLLECTIVE_SCRATCH_BYTES + Math.ceil(GEMM_SCRATCH_BYTES / 64) * 64;
