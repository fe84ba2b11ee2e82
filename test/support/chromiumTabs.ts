/**
 * Tabs of a Chromium that are shown, hidden and frozen as those of a user are, by the protocol of its developer tools
 * over a pipe: playwright makes every page believe that it is visible.
 */
import { spawn } from "node:child_process";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { Readable, Writable } from "node:stream";
import { chromiumFlags } from "./browserPage.js";
import { endGroup } from "./processGroup.js";

/** A tab. */
export interface Tab {
  /** Runs code in the page, waits for it, and gives its value. */
  evaluate(code: string): Promise<unknown>;
  /** Shows the tab, which hides all others. */
  show(): Promise<void>;
  /** Stops the timers and tasks of a hidden tab, or lets them go on. */
  freeze(isFrozen: boolean): Promise<void>;
}

/** A browser with tabs. */
export interface TabbedBrowser {
  /** Opens an address in a new tab, and waits until it is loaded. */
  open(url: string): Promise<Tab>;
  close(): Promise<void>;
}

/** Starts a Chromium. */
export function startChromium(executable: string): TabbedBrowser {
  const profile = mkdtempSync(join(tmpdir(), "shardwise-chromium-"));
  const flags = ["--headless", "--remote-debugging-pipe", `--user-data-dir=${profile}`, ...chromiumFlags];
  // A group of its own, since its network service outlives the first process and goes on to write into the profile.
  const child = spawn(executable, flags, {
    stdio: ["ignore", "ignore", "ignore", "pipe", "pipe"],
    detached: true,
  });
  const exited = new Promise((resolve) => child.once("exit", resolve));
  const send = caller(child.stdio[3] as Writable, child.stdio[4] as Readable);
  return {
    async open(url) {
      const { targetId } = await send("Target.createTarget", { url });
      const { sessionId } = await send("Target.attachToTarget", { targetId, flatten: true });
      const evaluate = async (expression: string): Promise<unknown> => {
        const parameters = { expression, awaitPromise: true, returnByValue: true };
        const { result, exceptionDetails } = await send("Runtime.evaluate", parameters, sessionId);
        if (exceptionDetails) throw new Error(JSON.stringify(exceptionDetails));
        return (result as { readonly value?: unknown }).value;
      };
      const isLoaded = `location.href === ${JSON.stringify(url)} && document.readyState === "complete"`;
      while (!(await evaluate(isLoaded))) await new Promise((resolve) => setTimeout(resolve, 20));
      return {
        evaluate,
        async show() {
          await send("Target.activateTarget", { targetId });
        },
        async freeze(isFrozen) {
          await send("Page.setWebLifecycleState", { state: isFrozen ? "frozen" : "active" }, sessionId);
        },
      };
    },
    async close() {
      endGroup(child);
      await exited;
      rmSync(profile, { recursive: true, force: true, maxRetries: 5 });
    },
  };
}

type Answer = Readonly<Record<string, unknown>>;

/** Calls methods of the browser; messages end with a zero byte. */
function caller(to: Writable, from: Readable) {
  const waiting = new Map<number, { resolve: (answer: Answer) => void; reject: (error: Error) => void }>();
  let text = "";
  from.setEncoding("utf8").on("data", (more: string) => {
    const messages = (text + more).split("\0");
    text = messages.pop() ?? "";
    for (const message of messages) {
      const { id, result, error } = JSON.parse(message);
      if (error) waiting.get(id)?.reject(new Error(error.message));
      else waiting.get(id)?.resolve(result);
      waiting.delete(id);
    }
  });
  let last = 0;
  return (method: string, params: Answer, sessionId?: unknown): Promise<Answer> =>
    new Promise((resolve, reject) => {
      waiting.set(++last, { resolve, reject });
      to.write(`${JSON.stringify({ id: last, method, params, sessionId })}\0`);
    });
}
