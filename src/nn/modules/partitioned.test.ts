import { describe, expect, test } from "vitest";
import { expectClose } from "../../../test/support/goldens.js";
import {
  evalShape,
  Mesh,
  makeProgram,
  np,
  P,
  printProgram,
  random,
  shardMap,
  Tensor,
  tree,
  withMesh,
} from "../../index.js";
import * as nn from "../index.js";

const key = random.key(0);
const x = np.ones([4, 2]);
const lecun = nn.initializers.lecunNormal();
const mesh = Mesh.create({ data: 2, model: 2 });

const dense = nn.Dense({ features: 4, kernelInit: nn.withPartitioning(lecun, [null, "model"]) });
const kernelOf = (variables: nn.Variables) => variables.params?.kernel;

describe("a Partitioned parameter", () => {
  test("is stored in its box and used without", async () => {
    const variables = dense.init(key, x);
    const box = kernelOf(variables);
    expect(box).toBeInstanceOf(nn.Partitioned);
    expect(String(box)).toBe('Partitioned(null, "model")');
    const plain = nn.Dense({ features: 4 });
    await expectClose(dense.apply(variables, x), plain.apply(plain.init(key, x), x));
    await expectClose(plain.apply(nn.unbox(variables), x), dense.apply(variables, x));
  });

  test("is a node of trees and keeps its names", () => {
    const doubled = tree.map((leaf: Tensor) => np.multiply(leaf, 2), dense.init(key, x));
    expect(kernelOf(doubled)).toMatchObject({ names: [null, "model"] });
    expect(tree.flattenWithPath(doubled).map(({ path }) => path)).toEqual(["params/bias", "params/kernel"]);
    const other = nn.replaceBoxed(doubled, { params: { bias: np.zeros([4]), kernel: np.zeros([2, 4]) } });
    expect(kernelOf(other)).toMatchObject({ names: [null, "model"], value: { shape: [2, 4] } });
  });

  test("tells its spec, also before there are values", () => {
    const wanted = { params: { bias: P(), kernel: P(null, "model") } };
    expect(nn.getPartitionSpec(dense.init(key, x))).toEqual(wanted);
    expect(nn.getPartitionSpec(evalShape(dense.init)(key, x))).toEqual(wanted);
    const shardings = nn.getSharding(dense.init(key, x), mesh);
    expect(shardings.params?.kernel).toMatchObject({ mesh, spec: P(null, "model") });
  });

  test("gains and loses dims", () => {
    const box = new nn.Partitioned(x, ["data", "model"]);
    const params = { partitionName: "layers" };
    expect(box.addAxis(1, params).names).toEqual(["data", "layers", "model"]);
    expect(box.addAxis(3, params).names).toEqual(["data", "model", null, "layers"]);
    expect(box.addAxis(-1, params).names).toEqual(["data", "model", "layers"]);
    expect(box.addAxis(1, params).removeAxis(1, params).names).toEqual(box.names);
    expect(box.addAxis(0, { partitionName: null }).names).toEqual([null, "data", "model"]);
    expect(() => box.addAxis(0, {})).toThrow("partitionName");
    expect(() => box.removeAxis(0, params)).toThrow('dim 0 of Partitioned("data", "model") is named "data"');
  });

  test("is constrained where a mesh is known, and not where a shard map holds the axes", () => {
    const variables = dense.init(key, x);
    const program = (fn: (v: nn.Variables) => Tensor) => printProgram(makeProgram(fn)(variables));
    expect(program((v) => dense.apply(v, x))).not.toContain("shardingConstraint");
    expect(program((v) => withMesh(mesh, () => dense.apply(v, x)))).toContain("shardingConstraint");
    const inside = shardMap((v: nn.Variables) => dense.apply(v, x), { mesh, inSpecs: P(), outSpecs: P() });
    expect(program((v) => withMesh(mesh, () => inside(v)))).not.toContain("shardingConstraint");
    const boxed = new nn.Partitioned(x, [["data", "model"]], mesh);
    expect(printProgram(makeProgram(() => boxed.unbox())())).toContain("shardingConstraint");
  });

  test("keeps its box when a variable is set", () => {
    const Model = nn.module("Model", () => () => {
      const state = nn.variable<Tensor>(
        "state",
        "s",
        () => new nn.Partitioned(x, ["data"]) as unknown as Tensor,
      );
      expect(state.value).toBeInstanceOf(Tensor);
      state.value = np.zeros([4, 2]);
      expect(state.isMutable).toBe(true);
      return 0;
    });
    expect(Model().init(key).state?.s).toMatchObject({ names: ["data"] });
  });
});

describe("logical names", () => {
  const rules: nn.LogicalRules = [
    ["batch", "data"],
    ["embed", "data"],
    ["embed", "model"],
    ["mlp", ["data", "model"]],
    ["heads", null],
  ];

  test("become mesh axes in the order of the rules, each axis once", () => {
    expect(nn.logicalToMeshAxes(["batch", "embed"], rules)).toEqual(P("data", "model"));
    expect(nn.logicalToMeshAxes(["embed", "mlp"], rules)).toEqual(P("data", null));
    expect(nn.logicalToMeshAxes(["mlp", null, "heads", "unknown"], rules)).toEqual(
      P(["data", "model"], null, null, null),
    );
    expect(nn.logicalToMeshAxes(["batch"])).toEqual(P(null));
    expect(nn.logicalAxisRules(rules, () => nn.logicalToMeshAxes(["batch"]))).toEqual(P("data"));
    expect(nn.getLogicalAxisRules()).toEqual([]);
    expect(() => nn.logicalToMeshAxes(["batch", "batch"], rules)).toThrow('use "batch" twice');
  });

  test("name parameters, which are split by the rules in force", () => {
    const model = nn.Dense({ features: 4, kernelInit: nn.withLogicalPartitioning(lecun, ["embed", "mlp"]) });
    const variables = model.init(key, x);
    expect(kernelOf(variables)).toBeInstanceOf(nn.LogicallyPartitioned);
    const specs = nn.getPartitionSpec(variables);
    expect(specs).toEqual({ params: { bias: P(), kernel: P("embed", "mlp") } });
    expect(nn.logicalToMesh(specs, rules)).toEqual({ params: { bias: P(), kernel: P("data", null) } });
    const [bias] = tree.leaves(nn.logicalToMeshSharding(specs, mesh, rules));
    expect(bias).toMatchObject({ mesh, spec: P() });
    const print = () => printProgram(makeProgram((v: nn.Variables) => model.apply(v, x))(variables));
    expect(withMesh(mesh, print)).not.toContain("shardingConstraint");
    expect(nn.logicalAxisRules(rules, () => withMesh(mesh, print))).toContain("shardingConstraint");
    const box = kernelOf(variables) as nn.LogicallyPartitioned;
    const grown = box.addAxis(0, { partitionName: "layers" });
    expect(grown).toBeInstanceOf(nn.LogicallyPartitioned);
    expect(grown.names).toEqual(["layers", "embed", "mlp"]);
  });

  test("constrain values, unless there are no rules or no mesh", () => {
    const print = (options: nn.LogicalConstraintOptions) =>
      printProgram(makeProgram((v: Tensor) => nn.withLogicalConstraint(v, ["batch", "other"], options))(x));
    expect(print({ rules })).not.toContain("shardingConstraint");
    expect(print({ mesh })).not.toContain("shardingConstraint");
    expect(print({ rules, mesh })).toContain("shardingConstraint");
    expect(print({ rules, mesh, fallback: "noConstraint" })).not.toContain("shardingConstraint");
    expect(() => print({ rules, mesh, fallback: "raiseError" })).toThrow('no rule applies to ["other"]');
  });
});
