/** How long the thread of a page computes before the first call of a function returns, and how much of that a worker saves it. */
import type { Browser, Page } from "playwright-core";
import { openPage } from "../../test/support/browserPage.js";
import type { Row } from "../measure.js";

/** Programs by name: the number of layers, or 0 for the step of a language model. */
const programs = { "decoder step, d256": 0, "12 layers": 12, "24 layers": 24, "48 layers": 48 };

/** The time that the page's thread has computed so far, in milliseconds: other work of the machine does not count. */
async function clockOf(page: Page): Promise<() => Promise<number>> {
  const session = await page.context().newCDPSession(page);
  await session.send("Performance.enable", { timeDomain: "threadTicks" });
  return async () => {
    const { metrics } = await session.send("Performance.getMetrics");
    return 1000 * (metrics.find(({ name }) => name === "ThreadTime")?.value ?? Number.NaN);
  };
}

/** What parts of the page's program take its thread; every one is at most one pause. */
async function timesOf(
  browser: Browser,
  url: string,
  depth: number,
  parts: readonly string[],
): Promise<number[]> {
  const { page } = await openPage(browser, url);
  const clock = await clockOf(page);
  await page.evaluate(`make(${depth})`);
  const times: number[] = [];
  for (const part of parts) {
    const before = await clock();
    await page.evaluate(`${part}()`);
    times.push((await clock()) - before);
  }
  await page.close();
  return times;
}

/** The table. @param url of a page with `pausePage.ts` */
export async function pauses(browser: Browser, url: string): Promise<Row[]> {
  const table: Row[] = [];
  for (const [program, depth] of Object.entries(programs)) {
    const [all = null] = await timesOf(browser, url, depth, ["call"]);
    const [tracing = null, loading = null, call = null] = await timesOf(browser, url, depth, [
      "trace",
      "load",
      "call",
    ]);
    table.push({
      program,
      "at once ms": all,
      "tracing ms": tracing,
      "the rest ms": loading,
      "call after it ms": call,
    });
  }
  return table;
}
