import { expect, test } from "vitest";
import * as np from "../../../numpy/index.js";
import type { OriginFiles } from "../../../platform/pageStorage.js";
import { Mesh } from "../../../spmd/mesh/mesh.js";
import { P } from "../../../spmd/mesh/partitionSpec.js";
import { devicePut, NamedSharding, shardingOf } from "../../../spmd/mesh/sharding.js";
import "../../install.js";
import { checkpointsIn } from "./pageCheckpoints.js";

/** Files in memory, with the bytes of each. */
function filesInMemory(): OriginFiles & { readonly kept: Map<string, Uint8Array> } {
  const kept = new Map<string, Uint8Array>();
  return {
    kept,
    names: async () => [...kept.keys()],
    read: async (name) => kept.get(name),
    write: async (name, bytes) => void kept.set(name, bytes.slice()),
    remove: async (name) => void kept.delete(name),
  };
}

const state = (value: number) => ({ w: np.full([2, 3], value), moments: [np.full([2], value, "bfloat16")] });

test("checkpoints are saved, listed, restored and removed", async () => {
  const checkpoints = checkpointsIn(filesInMemory());
  expect(await checkpoints.restore(state(0))).toBeUndefined();
  for (const step of [200, 100]) await checkpoints.save(step, state(step), { position: step });
  expect(await checkpoints.steps()).toEqual([100, 200]);
  const last = await checkpoints.restore(state(0));
  expect(last).toMatchObject({ step: 200, metadata: { position: 200 } });
  expect(await last?.values.w.js()).toEqual(Array(2).fill([200, 200, 200]));
  const first = await checkpoints.restore(state(0), { step: 100 });
  expect(first?.values.moments[0]?.dtype).toBe("bfloat16");
  await checkpoints.remove(200);
  expect(await checkpoints.steps()).toEqual([100]);
  await expect(checkpoints.restore(state(0), { step: 200 })).rejects.toThrow(
    "there is no complete checkpoint of step 200: there are 100",
  );
});

test("tensors are restored to where those of the target are", async () => {
  const checkpoints = checkpointsIn(filesInMemory());
  const sharding = new NamedSharding(Mesh.create({ data: 2 }), P("data"));
  const w = await devicePut(np.arange(8), sharding);
  await checkpoints.save(1, { w });
  const restored = await checkpoints.restore({ w });
  expect(shardingOf(restored?.values.w ?? w)?.toString()).toBe(sharding.toString());
  expect(await restored?.values.w.js()).toEqual([0, 1, 2, 3, 4, 5, 6, 7]);
});

test("what is damaged, incomplete or of another model is refused", async () => {
  const files = filesInMemory();
  const checkpoints = checkpointsIn(files);
  await checkpoints.save(3, state(3));
  await expect(checkpoints.restore({ w: np.ones([4]), moments: state(0).moments })).rejects.toThrow(
    "float32[2,3] in the file but must be float32[4]",
  );
  const bytes = files.kept.get("step-3.safetensors") ?? new Uint8Array();
  bytes[bytes.length - 1] = 99;
  await expect(checkpoints.restore(state(0))).rejects.toThrow("its checksum differs: it is damaged");
  files.kept.set("step-3.safetensors", bytes.slice(0, -1));
  await expect(checkpoints.restore(state(0))).rejects.toThrow(/it has \d+ bytes, and \d+ were written/);
  files.kept.set("step-3.json", new TextEncoder().encode("[]"));
  await expect(checkpoints.restore(state(0))).rejects.toThrow('it lacks "bytes" or "sha256"');
  files.kept.delete("step-3.json");
  expect(await checkpoints.steps()).toEqual([]);
});
