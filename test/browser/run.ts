/**
 * Runs the suite of engines and all reference values in a real browser:
 *
 *   npm run test:browsers [-- --engine threads|inline|reference] [--area AREA]
 *
 * Worker threads run in a page that is cross-origin isolated, the others in one that is not.
 */
import { existsSync, readdirSync, readFileSync } from "node:fs";
import { parseArgs } from "node:util";
import type { Browser } from "playwright-core";
import { bundlePage, launchBrowser, openPage, pageWith, serve } from "../support/browserPage.js";
import { findChromium } from "../support/programs.js";
import type { TestReport } from "./vitest.js";

const root = new URL("../../", import.meta.url);
const goldens = new URL("test/goldens/", root);

/** The engines of pages, and the kind of page that each runs in. */
const pages = { threads: "isolated", inline: "plain", reference: "plain" } as const;

/** Values that the file for pages without a bundler computes, given its address. */
const prebuilt = `
  import * as shardwise from "./shardwise.browser.js";
  const { jit, Mesh, nn, np, P, random } = shardwise;
  const x = random.normal(random.key(0), [8, 4]);
  const mlp = nn.Dense({ features: 2 });
  const sum = jit((x) => np.sum(x), { mesh: Mesh.create({ data: 2 }), inShardings: [P("data")] });
  globalThis.prebuilt = async () => {
    const y = mlp.apply(mlp.init(random.key(1), x), x);
    const isRight = Math.abs((await sum(x).js()) - (await np.sum(x).js())) < 1e-4 && y.shape.join() === "8,2";
    return isRight ? { passed: 1, failures: [] } : { passed: 0, failures: ["wrong values"] };
  };
`;

async function main(): Promise<number> {
  const { values } = parseArgs({ options: { engine: { type: "string" }, area: { type: "string" } } });
  const executable = findChromium();
  if (executable === undefined) {
    console.log("skipped, only with a browser (Debian: chromium; CHROMIUM names another one)");
    return 0;
  }
  const files = new Map<string, string | Uint8Array>([
    ["/index.html", pageWith("page.js")],
    ["/page.js", await bundlePage("test/browser/suite.ts", { vitest: "./test/browser/vitest.ts" })],
    ["/prebuilt.html", pageWith("prebuilt.js")],
    ["/prebuilt.js", prebuilt],
  ]);
  const own = new URL("dist/shardwise.browser.js", root);
  if (existsSync(own)) files.set("/shardwise.browser.js", readFileSync(own));
  for (const name of readdirSync(goldens))
    files.set(`/goldens/${name}`, readFileSync(new URL(name, goldens)));
  const { url, server } = await serve(files);
  const browser = await launchBrowser(executable);
  const total = { passed: 0, failed: 0 };
  const count = (what: string, { passed, failures }: TestReport) => {
    total.passed += passed;
    total.failed += failures.length;
    console.log(`${what}: ${passed} passed, ${failures.length} failed`);
    for (const failure of failures) console.log(`  FAIL ${failure}`);
  };
  const areas = readdirSync(goldens)
    .filter((name) => name.endsWith(".json"))
    .map((name) => name.replace(".json", ""))
    .filter((name) => (values.area ?? name) === name);
  for (const [engine, kind] of Object.entries(pages)) {
    if ((values.engine ?? engine) !== engine) continue;
    const run = (call: string) => inPage(browser, `${url}/${kind}/index.html`, call);
    if (values.area === undefined)
      count(`${engine}, ${kind} page, conformance`, await run(`conformance("${engine}")`));
    for (const area of areas)
      count(`${engine}, ${kind} page, ${area}`, await run(`goldens("${engine}", "${area}")`));
  }
  if (existsSync(own) && values.area === undefined) {
    for (const kind of ["isolated", "plain"]) {
      const isRight = await inPage(browser, `${url}/${kind}/prebuilt.html`, "prebuilt()");
      count(`dist/shardwise.browser.js, ${kind} page`, {
        passed: 1,
        failures: isRight ? [] : ["wrong values"],
      });
    }
  }
  await browser.close();
  server.close();
  console.log(`${total.passed} passed, ${total.failed} failed`);
  return total.failed > 0 || total.passed === 0 ? 1 : 0;
}

/** What a call gives in a new page; modules of the page have run before. */
async function inPage(browser: Browser, url: string, call: string): Promise<TestReport> {
  const { page, lines } = await openPage(browser, url);
  try {
    return await page.evaluate(call);
  } catch (error) {
    const said = lines.length > 0 ? `; the page wrote ${lines.join(" | ")}` : "";
    return { passed: 0, failures: [`${call}: ${String(error)}${said}`] };
  } finally {
    await page.close();
  }
}

process.exitCode = await main();
