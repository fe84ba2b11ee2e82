import { lax, np, scipy } from "shardwise";
import * as nn from "shardwise/nn";
import { describe, test } from "vitest";
import { expectClose } from "../../test/support/goldens.js";

test("softmax and logSoftmax of scipy.special are taken over all dims by default, as in SciPy", async () => {
  const x = np.array([
    [1, 2],
    [3, 0],
  ]);
  const flat = (fn: (y: typeof x) => typeof x) => fn(x.reshape([4])).reshape([2, 2]);
  const { softmax, logSoftmax } = scipy.special;
  await expectClose(
    softmax(x),
    flat((y) => nn.softmax(y)),
    { rtol: 1e-6, atol: 0 },
  );
  await expectClose(
    logSoftmax(x),
    flat((y) => nn.logSoftmax(y)),
    { rtol: 1e-6, atol: 0 },
  );
  await expectClose(softmax(x, -1), nn.softmax(x), { rtol: 1e-6, atol: 0 });
});

describe("complex arguments", () => {
  const z = lax.complex(np.array([0.3, 1.2]), np.array([0.4, -0.7]));
  const w = lax.complex(np.array([0.5, 2]), np.array([0.2, 1]));
  const at = (...numbers: readonly (readonly [number, number])[]) =>
    lax.complex(np.array(numbers.map(([re]) => re)), np.array(numbers.map(([, im]) => im)));
  const { special } = scipy;
  test.each([
    ["expit", () => special.expit(z), at([0.57743096, 0.09901811], [0.79304266, -0.12506664])],
    ["nn.sigmoid", () => nn.sigmoid(z), at([0.57743096, 0.09901811], [0.79304266, -0.12506664])],
    ["logit", () => special.logit(z), at([-0.4777557, 1.4464413], [0.6461992, -2.3771706])],
    ["erfcx", () => special.erfcx(z), at([0.655244, -0.25361252], [0.32776603, 0.13670579])],
    ["gamma", () => special.gamma(z), at([0.9115609, -1.3671921], [0.685741, 0.08929398])],
    ["loggamma", () => special.loggamma(z), at([0.49665642, -0.9827434], [-0.36884832, 0.12948686])],
    [
      "loggamma left",
      () => special.loggamma(at([-3.4, 0.2], [-0.5, 0])),
      at([-1.3178278, -12.1145386], [1.2655121, -Math.PI]),
    ],
    ["xlogy", () => special.xlogy(z, w), at([-0.33788374, -0.13342296], [1.2902161, -0.0069261])],
    ["xlog1py", () => special.xlog1py(z, w), at([0.07126216, 0.20547582], [1.6067765, -0.4198041])],
    ["boxcox", () => special.boxcox(z, w), at([-0.6350242, 0.6291601], [0.14254002, -1.1592919])],
    ["boxcox1p", () => special.boxcox1p(z, w), at([0.28671414, 0.34502035], [2.7482481, -0.58070564])],
    ["softmax", () => special.softmax(z), at([0.22795719, 0.2361837], [0.77204275, -0.2361837])],
    ["logSoftmax", () => special.logSoftmax(z), at([-1.1139836, 0.8031205], [-0.2139836, -0.29687956])],
    ["logsumexp", () => special.logsumexp(z).reshape([1]), at([1.4139836, -0.40312046])],
  ])("of %s give JAX's values", async (_, compute, want) => {
    await expectClose(np.real(compute()), np.real(want), { rtol: 2e-5, atol: 2e-5 });
    await expectClose(np.imag(compute()), np.imag(want), { rtol: 2e-5, atol: 2e-5 });
  });
});
