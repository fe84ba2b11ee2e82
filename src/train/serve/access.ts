/** Who may use a server. */
import { createHash, timingSafeEqual } from "node:crypto";
import type { IncomingMessage } from "node:http";
import { RequestError } from "./requestError.js";

const digest = (text: string) => createHash("sha256").update(text).digest();

/** Throws unless a request may be answered. @param key the key that requests must send, if there is one */
export function checkAccess({ headers }: IncomingMessage, key: string | undefined): void {
  if (key === undefined) {
    // A page of another site can point its own name at this machine, but not send the name of this one.
    if (/^(localhost|127(\.\d+){3}|\[::1\])(:\d+)?$/i.test(headers.host ?? "")) return;
    throw new RequestError(403, "without a key, only requests to localhost are answered");
  }
  const [, given = ""] = /^Bearer +(\S+)$/i.exec(headers.authorization ?? "") ?? [];
  // Comparing digests takes the same time for all keys, whatever their length.
  if (timingSafeEqual(digest(given), digest(key))) return;
  throw new RequestError(401, "give the server's key, as in Authorization: Bearer KEY", {
    code: "invalid_api_key",
  });
}
