/** Training on the GPU of a tab that is hidden, frozen, or loses its GPU. */
import type { Server } from "node:http";
import { afterAll, beforeAll, expect, test } from "vitest";
import { bundlePage, pageWith, serve } from "../support/browserPage.js";
import { startChromium, type Tab, type TabbedBrowser } from "../support/chromiumTabs.js";
import { describeWith, browser as installedBrowser } from "../support/optional.js";
import type { GpuRun } from "./gpuRun.js";

describeWith(installedBrowser, "a run on the GPU of a tab", (executable) => {
  let browser: TabbedBrowser;
  let served: { readonly url: string; readonly server: Server };
  let tab: Tab;
  let whole: GpuRun;

  const end = () => tab.evaluate("page.run") as Promise<GpuRun>;
  const step = () => tab.evaluate("page.step") as Promise<number>;
  const isHidden = () => tab.evaluate("document.hidden");

  beforeAll(async () => {
    const files = new Map<string, string | Uint8Array>([
      ["/index.html", pageWith("page.js")],
      ["/page.js", await bundlePage("test/browser/gpuRun.ts")],
    ]);
    served = await serve(files);
    browser = startChromium(executable);
    tab = await browser.open(`${served.url}/plain/index.html`);
    await tab.evaluate('start("runs/whole", false)');
    whole = await end();
  }, 240_000);
  afterAll(async () => {
    await browser?.close();
    served?.server.close();
  });

  test("goes on while it is hidden, pauses while it is frozen, and loses nothing", {
    timeout: 240_000,
  }, async () => {
    expect(whole.losses).toHaveLength(24);
    const other = await browser.open("about:blank");
    await other.show();
    await expect.poll(isHidden, { timeout: 30_000 }).toBe(true);
    await tab.evaluate('page.step = 0; start("runs/hidden", false)');
    // Its shaders are being compiled, or it takes its first steps.
    await tab.freeze(true);
    const before = await step();
    await new Promise((resolve) => setTimeout(resolve, 500));
    expect(await step()).toBe(before);
    expect(before).toBeLessThan(24);
    await tab.freeze(false);
    expect(await end()).toEqual(whole);
    expect(await isHidden()).toBe(true);
    await tab.show();
    await expect.poll(isHidden, { timeout: 30_000 }).toBe(false);
  });

  test("that is lost names the newest checkpoint, from which a new engine continues", {
    timeout: 240_000,
  }, async () => {
    await tab.evaluate('start("runs/lost", false, 7)');
    const { failure } = await end();
    expect(failure).toMatch(
      /the GPU was lost \(destroyed\).*the checkpoint of step \d+ is complete: continue from it/,
    );
    await tab.evaluate('start("runs/lost", true)');
    expect(await end()).toEqual(whole);
  });
});
