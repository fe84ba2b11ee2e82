// What every page must be able to do: a program over a mesh, and what it computed, for whoever opened the page.
import { grad, jit, Mesh, np, P } from "shardwise";

async function results() {
  const loss = (w, x) => np.sum(np.tanh(np.matmul(x, w)));
  const mesh = Mesh.create({ data: 2 });
  const step = jit(grad(loss), { mesh, inShardings: [P(), P("data")] });
  const gradient = await np.sum(step(np.full([16, 8], 0.01), np.ones([32, 16]))).item();
  return { gradient, engine: mesh.engine.name };
}

globalThis.results = results();
