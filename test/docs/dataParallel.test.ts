import { costAnalysis, grad, Mesh, np, P, random, shardMap, type Tensor } from "shardwise";
import { simulateDevices } from "shardwise/engines";
import * as nn from "shardwise/nn";
import { initSharded, shardModuleParams, syncGradients } from "shardwise/parallel";
import { describe, expect, test } from "vitest";
import { flattenWithPath } from "../../src/trace/tree.js";
import { agreement, expectTreeClose } from "../support/goldens.js";
import { describePage } from "../support/pages.js";

const Mlp = nn.module("Mlp", () => (x: Tensor) => {
  const h = nn.gelu(nn.Dense({ features: 64 })(x));
  return nn.Dense({ features: 8 })(h);
});

const mesh = Mesh.create({ fsdp: 4 }, { engine: simulateDevices(4) });
const model = shardModuleParams(Mlp, "fsdp", { minWeightSize: 100 })();

const x = random.normal(random.key(0), [32, 16]);
const variables = initSharded(model.init, { mesh, inSpecs: [P(), P("fsdp")] })(random.key(1), x);
const specs = nn.getPartitionSpec(variables);

const step = shardMap(
  (params: nn.Variables, batch: Tensor) => {
    const loss = (v: nn.Variables) => np.mean(np.square(model.apply(v, batch)));
    return syncGradients(grad(loss)(params), "fsdp");
  },
  { mesh, inSpecs: [specs, P("fsdp")], outSpecs: specs, checkReplication: false },
);
const grads = step(variables, x);
const cost = costAnalysis(step)(variables, x);

describe("the code of the page", () => {
  test("gives the gradients of the whole batch", async () => {
    const loss = (v: nn.Variables) => np.mean(np.square(Mlp().apply(v, x)));
    await expectTreeClose(nn.unbox(grads), grad(loss)(nn.unbox(variables)), agreement.gradient);
  });

  test("sends as many bytes as the formulas say", () => {
    const [split, whole, rest] = [6144, 288, 3 / 4];
    expect(cost.bytesMoved({ op: "allGather" })).toBe(split * rest);
    expect(cost.bytesMoved({ op: "psumScatter" })).toBe(split * rest);
    expect(cost.bytesMoved({ op: "psum" })).toBe(2 * whole * rest);
  });
});

describePage("parallelism/data.md", import.meta.url, {
  names: () =>
    flattenWithPath(variables, nn.isBoxed)
      .map(({ path, leaf }) => `${path.padEnd(22)} ${leaf}`)
      .join("\n"),
  cost: () => `${cost}`,
});
