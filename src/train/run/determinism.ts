import { createHash } from "node:crypto";
import { ShardwiseError } from "../../ir/errors.js";
import type { Tensor } from "../../trace/tensor.js";
import * as tree from "../../trace/tree.js";
import { bytesOf } from "../files/safetensors.js";
import { download, namedLeaves } from "../files/treeFiles.js";
import { onHost } from "../folder/savedRun.js";
import type { Training } from "../step/training.js";

/** What two runs of the same step had in common. */
export interface DeterminismReport {
  readonly numTensors: number;
  /** The SHA-256 of the state after the step. */
  readonly sha256: string;
}

/** Runs the first step of a seed twice and compares all bits of the state after it; throws at the first difference. */
export async function verifyDeterminism(
  training: Training,
  seed: number,
  tokens: Tensor,
): Promise<DeterminismReport> {
  const after = async () => {
    const [state, metrics] = training.step(training.init(seed), tokens);
    const host = namedLeaves(await onHost(state), "verifyDeterminism");
    tree.dispose([state, metrics]);
    return Promise.all(
      host.map(async (leaf) => ({
        path: leaf.path,
        bytes: bytesOf(await download(leaf, "verifyDeterminism")),
      })),
    );
  };
  const [first, second] = [await after(), await after()];
  const hash = createHash("sha256");
  first.forEach(({ path, bytes }, i) => {
    const other = second[i]?.bytes ?? new Uint8Array();
    const at = bytes.findIndex((byte, b) => byte !== other[b]);
    if (at >= 0) {
      throw new ShardwiseError(
        "value",
        `[verifyDeterminism] ${path} differs at byte ${at} after the same step from the same state: this machine or its BLAS does not compute alike twice; choose another with SHARDWISE_GEMM`,
      );
    }
    hash.update(bytes);
  });
  return { numTensors: first.length, sha256: hash.digest("hex") };
}
