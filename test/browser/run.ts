/**
 * Runs the suite of engines, all reference values, training and random programs in the browsers of this machine:
 *
 *   npm run test:browsers [-- --browser chromium|firefox|webkit] [--engine threads|oneThread|inline|reference|webgpu] [--page isolated|plain] [--area conformance,training,programs,AREA]
 *
 * Worker threads run in a page that is cross-origin isolated, the others in one that is not, unless `--page` says so.
 */
import { existsSync, readdirSync, readFileSync } from "node:fs";
import { parseArgs } from "node:util";
import type { Browser } from "playwright-core";
import { bundlePage, launchBrowser, openPage, pageWith, serve } from "../support/browserPage.js";
import { Firefox } from "../support/firefox.js";
import { findChromium, findFirefox, findWebKit } from "../support/programs.js";
import { WebKit } from "../support/webkit.js";
import type { TestReport } from "./vitest.js";

const root = new URL("../../", import.meta.url);
const goldens = new URL("test/goldens/", root);
const own = new URL("dist/shardwise.browser.js", root);

/** The engines of pages, and the kind of page that each runs in. */
const pages = {
  threads: "isolated",
  oneThread: "plain",
  inline: "plain",
  reference: "plain",
  webgpu: "plain",
} as const;

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

/** A browser that opens pages, each of which computes one report. */
interface TestBrowser {
  report(url: string, call: string): Promise<TestReport>;
  close(): Promise<void>;
}

/** The browsers by name: how to find each, what to install where there is none, and how to start it. */
const browsers: Readonly<
  Record<
    string,
    {
      readonly find: () => string | undefined;
      readonly hint: string;
      readonly launch: (executable: string) => Promise<TestBrowser>;
    }
  >
> = {
  chromium: {
    find: findChromium,
    hint: "Debian: chromium; CHROMIUM names another one",
    launch: async (executable) => withPlaywright(await launchBrowser(executable)),
  },
  firefox: {
    find: findFirefox,
    hint: "Debian: firefox-esr; FIREFOX names another one",
    launch: async (executable) => withWebDriver(await Firefox.launch(executable)),
  },
  webkit: {
    find: findWebKit,
    hint: "Debian: webkit2gtk-driver, and xvfb where there is no screen; WEBKIT names another driver",
    launch: async (executable) => withWebDriver(await WebKit.launch(executable)),
  },
};

function withPlaywright(browser: Browser): TestBrowser {
  return {
    async report(url, call) {
      const context = await browser.newContext();
      let written: readonly string[] = [];
      try {
        const { page, lines } = await openPage(context, url);
        written = lines;
        return await page.evaluate(call);
      } catch (error) {
        const said = written.length > 0 ? `; the page wrote ${written.join(" | ")}` : "";
        return { passed: 0, failures: [`${call}: ${String(error)}${said}`] };
      } finally {
        await context.close();
      }
    },
    close: () => browser.close(),
  };
}

function withWebDriver(browser: Firefox | WebKit): TestBrowser {
  return {
    report: async (url, call) =>
      browser.evaluate(url, call).then(
        (value) => value as TestReport,
        (error: unknown) => ({ passed: 0, failures: [`${call}: ${String(error)}`] }),
      ),
    close: () => browser.close(),
  };
}

/** What the pages load. */
async function servedFiles(): Promise<Map<string, string | Uint8Array>> {
  const files = new Map<string, string | Uint8Array>([
    ["/index.html", pageWith("page.js")],
    ["/page.js", await bundlePage("test/browser/suite.ts", { vitest: "./test/browser/vitest.ts" })],
    ["/prebuilt.html", pageWith("prebuilt.js")],
    ["/prebuilt.js", prebuilt],
  ]);
  if (existsSync(own)) files.set("/shardwise.browser.js", readFileSync(own));
  for (const name of readdirSync(goldens))
    files.set(`/goldens/${name}`, readFileSync(new URL(name, goldens)));
  return files;
}

const areas = readdirSync(goldens)
  .filter((name) => name.endsWith(".json"))
  .map((name) => name.replace(".json", ""));

/** What is compared besides reference values. */
const suites = ["conformance", "training", "programs"];

/** Everything that one browser computes, as pages and calls. */
function* calls(browser: string, only: Readonly<Record<"engine" | "page" | "area", string | undefined>>) {
  const isChosen = (what: string) => only.area === undefined || only.area.split(",").includes(what);
  for (const [engine, usual] of Object.entries(pages)) {
    if ((only.engine ?? engine) !== engine) continue;
    const kind = only.page ?? usual;
    // Only Chromium brings an adapter of WebGPU for machines without a GPU.
    if (engine === "webgpu" && browser !== "chromium") continue;
    const page = `${kind}/index.html`;
    const name = (what: string) => `${engine}, ${kind} page, ${what}`;
    for (const suite of suites.filter(isChosen))
      yield { name: name(suite), page, call: `${suite}("${engine}")` };
    for (const area of areas.filter(isChosen))
      yield { name: name(area), page, call: `goldens("${engine}", "${area}")` };
  }
  if (!existsSync(own) || only.area !== undefined || only.engine !== undefined) return;
  for (const kind of ["isolated", "plain"])
    yield {
      name: `dist/shardwise.browser.js, ${kind} page`,
      page: `${kind}/prebuilt.html`,
      call: "prebuilt()",
    };
}

async function main(): Promise<number> {
  const { values } = parseArgs({
    options: {
      browser: { type: "string" },
      engine: { type: "string" },
      page: { type: "string" },
      area: { type: "string" },
    },
  });
  const known = {
    browser: Object.keys(browsers),
    engine: Object.keys(pages),
    page: ["isolated", "plain"],
    area: [...suites, ...areas],
  };
  const given = { ...values, area: values.area?.split(",") };
  for (const option of ["browser", "engine", "page", "area"] as const) {
    const unknown = [given[option] ?? []].flat().find((name) => !known[option].includes(name));
    if (unknown !== undefined)
      throw new Error(`unknown ${option} ${unknown}: use ${known[option].join(", ")}`);
  }
  const chosen = Object.entries(browsers).filter(([name]) => (values.browser ?? name) === name);
  const { url, server } = await serve(await servedFiles());
  const total = { passed: 0, failed: 0, skipped: 0 };
  for (const [name, { find, hint, launch }] of chosen) {
    const executable = find();
    if (executable === undefined) {
      console.log(`${name}: skipped, it is not installed (${hint})`);
      total.skipped++;
      continue;
    }
    const browser = await launch(executable);
    for (const { name: what, page, call } of calls(name, {
      engine: undefined,
      page: undefined,
      area: undefined,
      ...values,
    })) {
      const { passed, failures } = await browser.report(`${url}/${page}`, call);
      total.passed += passed;
      total.failed += failures.length;
      console.log(`${name}, ${what}: ${passed} passed, ${failures.length} failed`);
      for (const failure of failures) console.log(`  FAIL ${failure}`);
    }
    await browser.close();
  }
  server.close();
  console.log(`${total.passed} passed, ${total.failed} failed`);
  return total.failed > 0 || total.passed + total.skipped === 0 ? 1 : 0;
}

process.exitCode = await main();
