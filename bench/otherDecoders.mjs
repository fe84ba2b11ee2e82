// The training step of decoder.ts in other libraries, as their users would write it. `weights` is a list of `{ shape, data }`:
// embed; norm1, qkv, out, norm2, up, down of every layer; norm, head. Plain JavaScript, as in otherWorks.mjs.

const [beta1, beta2, epsilon, rate, decay] = [0.9, 0.95, 1e-8, 3e-4, 0.1];
const geluScale = Math.sqrt(2 / Math.PI);

/** The weights by name. */
function named([embed, ...rest]) {
  const [norm, head] = rest.slice(-2);
  const layers = Array.from({ length: (rest.length - 2) / 6 }, (_, i) => rest.slice(6 * i, 6 * i + 6));
  return { embed, layers, norm, head };
}

/** What each token is followed by, of `batch` rows of `sequence + 1` tokens. */
function inputsAndTargets({ batch, sequence }, tokens) {
  const rows = Array.from({ length: batch }, (_, i) => i * (sequence + 1));
  const from = (first) =>
    Int32Array.from(rows.flatMap((row) => [...tokens.subarray(row + first, row + first + sequence)]));
  return [from(0), from(1)];
}

/**
 * A decoder in TensorFlow.js, whose backend is ready: `step` starts a training step, `read` waits for a value that the last
 * one has computed, `loss` computes the loss.
 */
export function tensorflowDecoder(tf, size, weights, tokens) {
  const { width, sequence, batch, vocabulary, headSize } = size;
  const heads = width / headSize;
  const [inputs, targets] = inputsAndTargets(size, tokens).map((list) => tf.tensor1d(list, "int32"));
  const places = Array.from({ length: sequence }, (_, i) => i);
  const mask = tf.tensor2d(places.map((i) => places.map((j) => (j <= i ? 0 : -1e9))));

  const rmsNorm = (x, scale) =>
    tf.mul(tf.mul(x, tf.rsqrt(tf.add(tf.mean(tf.square(x), -1, true), 1e-6))), scale);
  const gelu = (x) => {
    const inner = tf.mul(tf.add(x, tf.mul(tf.mul(tf.mul(x, x), x), 0.044715)), geluScale);
    return tf.mul(tf.mul(x, tf.add(tf.tanh(inner), 1)), 0.5);
  };
  const attention = (x, qkv, out) => {
    const [q, k, v] = tf
      .split(tf.matMul(x, qkv), 3, -1)
      .map((part) => tf.transpose(tf.reshape(part, [batch, sequence, heads, headSize]), [0, 2, 1, 3]));
    const scores = tf.mul(tf.matMul(q, k, false, true), 1 / Math.sqrt(headSize));
    const mixed = tf.matMul(tf.softmax(tf.add(scores, mask)), v);
    return tf.matMul(tf.reshape(tf.transpose(mixed, [0, 2, 1, 3]), [batch * sequence, width]), out);
  };
  const lossOf = (...list) => {
    const { embed, layers, norm, head } = named(list);
    let x = tf.gather(embed, inputs);
    for (const [norm1, qkv, out, norm2, up, down] of layers) {
      x = tf.add(x, attention(rmsNorm(x, norm1), qkv, out));
      x = tf.add(x, tf.matMul(gelu(tf.matMul(rmsNorm(x, norm2), up)), down));
    }
    const logits = tf.matMul(rmsNorm(x, norm), head);
    const picked = tf.sum(tf.mul(tf.logSoftmax(logits), tf.oneHot(targets, vocabulary)), -1);
    return tf.neg(tf.mean(picked));
  };

  let params = weights.map(({ shape, data }) => tf.tensor(data, shape));
  let means = params.map((p) => tf.zerosLike(p));
  let squares = params.map((p) => tf.zerosLike(p));
  let count = 0;
  const adamw = (grads) => {
    const [correct1, correct2] = [1 - beta1 ** count, 1 - beta2 ** count];
    const nextMeans = means.map((m, i) => tf.add(tf.mul(m, beta1), tf.mul(grads[i], 1 - beta1)));
    const nextSquares = squares.map((v, i) =>
      tf.add(tf.mul(v, beta2), tf.mul(tf.mul(grads[i], grads[i]), 1 - beta2)),
    );
    const nextParams = params.map((p, i) => {
      const root = tf.add(tf.sqrt(tf.div(nextSquares[i], correct2)), epsilon);
      const update = tf.div(tf.div(nextMeans[i], correct1), root);
      return tf.sub(p, tf.mul(tf.add(update, tf.mul(p, decay)), rate));
    });
    return [nextParams, nextMeans, nextSquares];
  };
  return {
    step() {
      count++;
      const next = tf.tidy(() => adamw(tf.valueAndGrads(lossOf)(params).grads));
      tf.dispose([params, means, squares]);
      [params, means, squares] = next;
    },
    read: () => named(params).norm.data(),
    async loss() {
      const loss = tf.tidy(() => lossOf(...params));
      const [value] = await loss.data();
      loss.dispose();
      return value;
    },
    dispose: () => tf.dispose([params, means, squares, inputs, targets, mask]),
  };
}

/** A decoder in jax-js, whose default device is set. @returns as above */
export function jaxJsDecoder(jax, size, weights, tokens) {
  const { numpy: np, nn, grad, jit, tree } = jax;
  const { width, sequence, batch, vocabulary, headSize } = size;
  const shape = [batch, sequence];
  const [inputs, targets] = inputsAndTargets(size, tokens).map((list) => np.array(list).reshape(shape));

  const rmsNorm = (x, scale) => {
    const meanSquare = np.mean(x.ref.mul(x.ref), -1, { keepdims: true });
    return x.div(np.sqrt(meanSquare.add(1e-6))).mul(scale);
  };
  const gelu = (x) => {
    const inner = x.ref.add(x.ref.mul(x.ref).mul(x.ref).mul(0.044715)).mul(geluScale);
    return x.mul(np.tanh(inner).add(1)).mul(0.5);
  };
  const attention = (x, qkv, out) => {
    const [q, k, v] = np
      .split(np.matmul(x, qkv), 3, -1)
      .map((part) => part.reshape([batch, sequence, width / headSize, headSize]));
    const mixed = nn.dotProductAttention(q, k, v, { isCausal: true });
    return np.matmul(mixed.reshape([batch, sequence, width]), out);
  };
  const lossOf = (list, tokens, next) => {
    const { embed, layers, norm, head } = named(list);
    let x = np.take(embed, tokens, 0);
    for (const [norm1, qkv, out, norm2, up, down] of layers) {
      x = x.ref.add(attention(rmsNorm(x, norm1), qkv, out));
      x = x.ref.add(np.matmul(gelu(np.matmul(rmsNorm(x, norm2), up)), down));
    }
    const logits = np.matmul(rmsNorm(x, norm), head);
    const picked = np.sum(nn.logSoftmax(logits, -1).mul(nn.oneHot(next, vocabulary)), -1);
    return np.mean(picked).mul(-1);
  };
  const stepOf = ({ params, means, squares, count }, tokens, next) => {
    const grads = grad((list) => lossOf(list, tokens, next))(tree.ref(params));
    const done = count.add(1);
    const correct1 = np.power(beta1, done.ref).mul(-1).add(1);
    const correct2 = np.power(beta2, done.ref).mul(-1).add(1);
    const nextMeans = means.map((m, i) => m.mul(beta1).add(grads[i].ref.mul(1 - beta1)));
    const nextSquares = squares.map((v, i) => v.mul(beta2).add(grads[i].ref.mul(grads[i]).mul(1 - beta2)));
    const nextParams = params.map((p, i) => {
      const root = np.sqrt(nextSquares[i].ref.div(correct2.ref)).add(epsilon);
      const update = nextMeans[i].ref.div(correct1.ref).div(root);
      return p.ref.sub(update.add(p.mul(decay)).mul(rate));
    });
    tree.dispose([correct1, correct2]);
    return { params: nextParams, means: nextMeans, squares: nextSquares, count: done };
  };

  const params = weights.map(({ shape, data }) => np.array(data).reshape(shape));
  const zeros = () => weights.map(({ shape }) => np.zeros(shape));
  let state = { params, means: zeros(), squares: zeros(), count: np.array(0) };
  const compiled = jit(stepOf);
  const compiledLoss = jit(lossOf);
  return {
    step() {
      state = compiled(state, inputs.ref, targets.ref);
    },
    read: () => named(state.params).norm.ref.data(),
    async loss() {
      const [value] = await compiledLoss(tree.ref(state.params), inputs.ref, targets.ref).data();
      return value;
    },
    dispose: () => tree.dispose([state, inputs, targets]),
  };
}
