import type { Tensor } from "shardwise";
import * as nn from "shardwise/nn";
import { type CaseFunction, describeJaxCases } from "../../../test/support/jaxCases.js";

/** A case of query, key, value and perhaps one tensor more. */
const of =
  (fn: (q: Tensor, k: Tensor, v: Tensor, more: Tensor) => unknown): CaseFunction =>
  (q, k, v, more) =>
    q && k && v ? fn(q, k, v, more ?? v) : [];

const causal = of((q, k, v) => nn.dotProductAttention(q, k, v, { isCausal: true }));

const cases: Readonly<Record<string, CaseFunction>> = {
  "all keys": of((q, k, v) => {
    const { output, logSumExp } = nn.attention(q, k, v);
    return [output, logSumExp];
  }),
  causal,
  bias: of((q, k, v, bias) => nn.dotProductAttention(q, k, v, { bias })),
  mask: of((q, k, v, mask) => nn.dotProductAttention(q, k, v, { mask })),
  window: of((q, k, v) => nn.dotProductAttention(q, k, v, { localWindowSize: [1, 2] })),
  scale: of((q, k, v) => nn.attention(q, k, v, { scale: 0.3 }).output),
  "query lengths": of((q, k, v, querySeqLengths) => nn.dotProductAttention(q, k, v, { querySeqLengths })),
  "key lengths": of((q, k, v, keyValueSeqLengths) => nn.dotProductAttention(q, k, v, { keyValueSeqLengths })),
  sinks: of((q, k, v, sinks) => nn.attention(q, k, v, { sinks }).output),
  "soft cap": of((q, k, v) => nn.attention(q, k, v, { softcap: 1.5 }).output),
  packed: of((q, k, v, segmentIds) => nn.attention(q, k, v, { segmentIds, causal: true }).output),
  tiles: causal,
  "tiles in a window": of((q, k, v) => nn.dotProductAttention(q, k, v, { localWindowSize: 9 })),
};

describeJaxCases("attention.json", cases, {
  tolerance: 1e-5,
  everyday: ["all keys", "bias", "sinks", "packed", "tiles", "tiles in a window"],
});
