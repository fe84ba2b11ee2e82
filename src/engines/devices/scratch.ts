import { GEMM_SCRATCH_BYTES } from "../../compiler/gemm/blockedGemm.js";
import { COLLECTIVE_SCRATCH_BYTES } from "../collectives/collectiveWork.js";
import { ADDRESS_UNIT } from "../protocol/commands.js";
import { aligned, layout } from "../protocol/layout.js";

/** Where the parts of a device's scratch memory begin, in bytes; it lies below its heap and belongs to no buffer. */
export const SCRATCH = layout({
  collectives: aligned(ADDRESS_UNIT, COLLECTIVE_SCRATCH_BYTES),
  gemm: aligned(ADDRESS_UNIT, GEMM_SCRATCH_BYTES),
});
