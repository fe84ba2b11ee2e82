import { expect, test } from "vitest";
import * as shardwise from "../src/index.js";

/**
 * The names that `import … from "shardwise"` offers, types aside. A new name is added here on purpose; a missing
 * one breaks somebody's program.
 */
const names = [
  ...["AxisError", "DTypeError", "DimError", "DisposedError", "GradientError", "InternalError"],
  ...["NotAddressableError", "ParseError"],
  ...["ShapeError", "ShardingError", "ShardwiseError", "TracerError", "TreeError", "ValueError"],
  ...["lax", "np", "random", "tree"],
  ...["Mesh", "NamedSharding", "P", "PartitionSpec", "Tensor"],
  ...[
    "addressableShards",
    "devicePut",
    "engineInfo",
    "visualizeSharding",
    "withMesh",
    "withShardingConstraint",
  ],
  ...[
    "checkpointName",
    "checkpointPolicies",
    "costAnalysis",
    "customGradient",
    "customVjp",
    "deviceMemoryStats",
    "evalShape",
    "explainSharding",
    "findNonFinite",
    "grad",
    "jit",
    "jvp",
  ],
  ...[
    "makeProgram",
    "parseProgram",
    "printProgram",
    "remat",
    "shardMap",
    "simplify",
    "valueAndGrad",
    "verify",
    "vjp",
    "vmap",
  ],
];

test("the package exports these names and no others", () => {
  expect(Object.keys(shardwise).sort()).toEqual([...names].sort());
});
