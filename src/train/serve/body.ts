import type { IncomingMessage } from "node:http";
import { attempt } from "../../ir/errors.js";
import { parseJson } from "../../ir/jsonReaders.js";
import { RequestError } from "./requestError.js";

/** What is read of a body that is too large, as a multiple of the limit, so that its client sees the answer. */
const discarded = 8;

/** Reads the body of a request as JSON. */
export async function readJsonBody(request: IncomingMessage, maxBytes: number): Promise<unknown> {
  const type = request.headers["content-type"] ?? "";
  // Pages of other sites can send any other type to this server without being allowed to.
  if (!/^application\/json\s*(;|$)/i.test(type)) {
    throw new RequestError(415, "the Content-Type must be application/json");
  }
  const encoding = request.headers["content-encoding"] ?? "identity";
  if (encoding !== "identity") throw new RequestError(415, "compressed bodies are not supported");
  const tooLarge = new RequestError(413, `the body is larger than ${maxBytes} bytes`);
  if (Number(request.headers["content-length"] ?? 0) > discarded * maxBytes) throw tooLarge;
  const chunks: Buffer[] = [];
  let size = 0;
  for await (const chunk of request.iterator({ destroyOnReturn: false })) {
    if (!(chunk instanceof Buffer)) continue;
    size += chunk.length;
    if (size <= maxBytes) chunks.push(chunk);
    if (size > discarded * maxBytes) break;
  }
  if (size > maxBytes) throw tooLarge;
  const decoder = new TextDecoder("utf-8", { fatal: true });
  const wrongText = () => new RequestError(400, "the body is not UTF-8");
  const text = attempt(() => decoder.decode(Buffer.concat(chunks)), wrongText);
  return parseJson(text, (reason) => new RequestError(400, `the body is not JSON (${reason})`));
}
