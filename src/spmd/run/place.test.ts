import { describe, expect, test } from "vitest";
import { createReferenceEngine } from "../../engines/index.js";
import {
  customVjp,
  devicePut,
  grad,
  jit,
  jvp,
  lax,
  Mesh,
  makeProgram,
  NamedSharding,
  np,
  P,
  remat,
  ShardingError,
  shardMap,
  type Tensor,
  vjp,
  vmap,
  withMesh,
  withShardingConstraint,
} from "../../index.js";
import { forEachEqn, type Program } from "../../ir/program.js";

const engine = createReferenceEngine({ numDevices: 4 });
const mesh = Mesh.create({ data: 2 }, { engine, devices: [3, 1] });
const x = np.array([1, 2, 3, 4]);

/** Doubles each device's half. */
const doubled = shardMap((block: Tensor) => block.mul(2), { mesh, inSpecs: P("data"), outSpecs: P("data") });
const total = (v: Tensor) => np.sum(doubled(v));
const zero = np.array(0);

/** The meshes that the equations of a program name. */
function meshesIn(program: Program): object[] {
  const found: object[] = [];
  forEachEqn(program, (eqn) => {
    if (eqn.op === "shardMap" || eqn.op === "shardingConstraint") found.push(eqn.params.mesh);
  });
  return found;
}

describe("a program that names a mesh", () => {
  test("knows only the mesh's shape", () => {
    const sharding = new NamedSharding(mesh, P("data"));
    const inner = jit((v: Tensor) => v.add(1), { inShardings: sharding, outShardings: sharding });
    const fn = (v: Tensor) => withShardingConstraint(inner(doubled(v)), sharding).sum();
    const meshes = meshesIn(makeProgram(grad(fn))(x));
    expect(meshes.length).toBeGreaterThan(4);
    for (const found of meshes) expect(found).toStrictEqual({ axes: [{ name: "data", size: 2 }] });
  });

  const ways: { readonly [name: string]: () => Tensor } = {
    "called by itself": () => doubled(x),
    "in jit": () => jit(doubled)(x),
    "in a jit that was traced before the one around it": () => {
      const inner = jit(doubled);
      inner(x);
      return jit((v: Tensor) => inner(v).add(1))(x);
    },
    "in grad": () => grad(total)(x),
    "in jit of grad": () => jit(grad(total))(x),
    "in vjp, forward": () => vjp(doubled, [x])[0],
    "in vjp, backward": () => vjp(doubled, [x])[1](x)[0],
    "in jvp": () => jvp(doubled, [x], [x])[1],
    "in vmap": () => vmap(doubled)(np.stack([x, x])),
    "in scan": () => lax.scan((carry: Tensor, v: Tensor) => [carry, doubled(v)], zero, np.stack([x]))[1],
    "in a condition": () =>
      lax.cond(
        np.array(true),
        (v: Tensor) => v,
        (v: Tensor) => doubled(v),
        x,
      ),
    "in a while loop's body": () => lax.whileLoop((v: Tensor) => np.sum(v).lt(100), doubled, x),
    "in a while loop's condition": () =>
      lax.whileLoop(
        (v: Tensor) => total(v).lt(100),
        (v) => v.mul(2),
        x,
      ),
    "in remat": () => remat(doubled)(x),
    "in a custom derivative": () =>
      customVjp(doubled, { forward: (v) => [doubled(v), null], backward: (_, ct) => [ct] })(x),
    "in the backward rule of a custom derivative": () =>
      grad((v: Tensor) =>
        np.sum(
          customVjp((u: Tensor) => u.mul(1), {
            forward: (u) => [u, null],
            backward: (_, ct) => [doubled(ct)],
          })(v),
        ),
      )(x),
    "as a constraint": () => withMesh(mesh, () => withShardingConstraint(x, P("data"))),
  };

  test.for(Object.entries(ways))("runs on that mesh %s", ([, run]) => {
    expect(run().sharding?.mesh).toBe(mesh);
  });

  const others = {
    "another shape": Mesh.create({ data: 4 }, { engine }),
    "another engine": Mesh.create({ data: 2 }, { engine: createReferenceEngine({ numDevices: 2 }) }),
    "other devices": Mesh.create({ data: 2 }, { engine, devices: [0, 1] }),
  };

  test.for(Object.entries(others))("cannot name a second one of %s, at any depth", ([, other]) => {
    const tripled = jit(
      shardMap((block: Tensor) => block.mul(3), { mesh: other, inSpecs: P("data"), outSpecs: P("data") }),
    );
    const both = [
      (v: Tensor) => tripled(doubled(v)),
      (v: Tensor) => lax.scan((carry: Tensor) => [doubled(carry), null], tripled(v), null, { length: 2 })[0],
      (v: Tensor) => lax.cond(np.array(true), doubled, tripled, v),
      (v: Tensor) => vmap(doubled)(np.stack([tripled(v)])),
    ];
    for (const fn of both) {
      for (const call of [jit(fn), makeProgram(fn)]) expect(() => call(x)).toThrow(ShardingError);
      expect(() => jit(fn)(x)).toThrow(
        /one program uses two meshes, Mesh \{data: \d\}.* and Mesh \{data: \d\}/,
      );
    }
  });

  test("says which devices two meshes of one shape have", () => {
    const other = others["other devices"];
    const tripled = shardMap((v: Tensor) => v.mul(3), {
      mesh: other,
      inSpecs: P("data"),
      outSpecs: P("data"),
    });
    expect(() => jit((v: Tensor) => tripled(doubled(v)))(x)).toThrow(
      "one program uses two meshes, Mesh {data: 2} on reference (devices 3, 1) and Mesh {data: 2} on reference (devices 0, 1): use one mesh with all axes",
    );
  });

  test("is traced again under another mesh when its constraints are those of the surrounding one", () => {
    const split = jit((v: Tensor) => withShardingConstraint(v.mul(2), P("data")));
    for (const around of [mesh, others["other devices"], mesh]) {
      expect(withMesh(around, () => split(x)).sharding?.mesh).toBe(around);
    }
  });
});

describe("arguments, shardings and constraints of two meshes", () => {
  const engine = createReferenceEngine({ numDevices: 4 });
  const front = Mesh.create({ data: 2 }, { engine, devices: [0, 1] });
  const back = Mesh.create({ data: 2 }, { engine, devices: [2, 3] });
  const again = Mesh.create({ model: 2 }, { engine, devices: [0, 1] });
  const x = np.array([1, 2, 3, 4]);

  test("are refused with both named", async () => {
    const [a, b] = await Promise.all([
      devicePut(x, new NamedSharding(front, P("data"))),
      devicePut(x, new NamedSharding(back, P("data"))),
    ]);
    const add = (u: Tensor, v: Tensor) => u.add(v);
    const both =
      /lies on Mesh \{data: 2\} on reference \(devices 2, 3\), but the program runs on Mesh \{data: 2\} on reference \(devices 0, 1\): move it with `await devicePut/;
    expect(() => jit(add)(a, b)).toThrow(both);
    expect(() => jit(add)(a, b)).toThrow(/^\[add\] input 1, f32\[4\]/);
    expect(() => a.add(b)).toThrow(both);
    expect(() => jit(add, { mesh: front })(x, b)).toThrow(both);
    expect(() => jit(add, { mesh: front, inShardings: new NamedSharding(back, P("data")) })(x, x)).toThrow(
      /one program uses two meshes/,
    );
    const constrained = (u: Tensor) => withShardingConstraint(u, new NamedSharding(back, P("data")));
    expect(() => jit(constrained, { mesh: front })(x)).toThrow(/one program uses two meshes/);
  });

  test("of an engine that is not the host are refused beside those of another", async () => {
    const other = Mesh.create({ data: 1 }, { engine: createReferenceEngine({ numDevices: 1 }) });
    const a = await devicePut(x, new NamedSharding(front, P("data")));
    const b = await devicePut(x, new NamedSharding(other, P("data")));
    expect(() => a.add(b)).toThrow(/input 1, f32\[4\], lies on .* but the program runs on Mesh \{data: 2\}/);
  });

  test("are fine where they name the same devices, or nothing but the host", async () => {
    const a = await devicePut(x, new NamedSharding(front, P("data")));
    const b = await devicePut(x, new NamedSharding(again, P("model")));
    expect(await a.add(b).js()).toEqual([2, 4, 6, 8]);
    expect(await jit((u: Tensor, v: Tensor) => u.mul(v), { mesh: front })(x, a).js()).toEqual([1, 4, 9, 16]);
  });
});
