import { createHash } from "#platform/hashing";
import { ShardwiseError } from "../../ir/errors.js";
import * as tree from "../../trace/tree.js";
import { bytesOf } from "../files/safetensors/safetensorsBytes.js";
import { download, namedLeaves } from "../files/safetensors/treeFiles.js";
import { onHost } from "../folder/savedRun.js";
import type { TokenInput } from "../step/tokenBatch.js";
import type { Training } from "../step/training.js";

/** Runs the first step of a seed twice and compares all bits of the state after it; throws at the first difference. @returns what was compared */
export async function verifyDeterminism(
  training: Training,
  seed: number,
  tokens: TokenInput,
): Promise<string> {
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
        `[verifyDeterminism] ${path} differs at byte ${at} after the same step from the same state: this machine or its BLAS is not deterministic; choose another with SHARDWISE_GEMM`,
      );
    }
    hash.update(bytes);
  });
  return `the first step gives the same bits twice: ${first.length} tensors, SHA-256 ${hash.digest("hex").slice(0, 16)}…`;
}
