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
  }, 240_000);
  afterAll(async () => {
    await browser?.close();
    served?.server.close();
  });

  // The two runs are disturbed in different ways, so that equal losses are those of an undisturbed run.
  test("goes on while it is hidden, pauses while it is frozen, and loses nothing, nor with its GPU", {
    timeout: 240_000,
  }, async () => {
    const other = await browser.open("about:blank");
    await other.show();
    await expect.poll(isHidden, { timeout: 30_000 }).toBe(true);
    await tab.evaluate('start("runs/hidden", false)');
    // Its shaders are being compiled, or it takes its first steps.
    await tab.freeze(true);
    const before = await step();
    await new Promise((resolve) => setTimeout(resolve, 500));
    expect(await step()).toBe(before);
    expect(before).toBeLessThan(24);
    await tab.freeze(false);
    const whole = await end();
    expect(whole.losses).toHaveLength(24);
    expect(await isHidden()).toBe(true);
    await tab.show();
    await expect.poll(isHidden, { timeout: 30_000 }).toBe(false);

    await tab.evaluate('start("runs/lost", false, 7)');
    const { failure } = await end();
    expect(failure).toMatch(
      /the GPU was lost \(destroyed\).*the checkpoint of step \d+ is complete: continue from it/,
    );
    // A new engine continues.
    await tab.evaluate('start("runs/lost", true)');
    expect(await end()).toEqual(whole);
  });
});
