/** The part of vitest that suites use, for pages: `describe` and `test` gather, `runTests` runs. */
import { JestAsymmetricMatchers, JestChaiExpect } from "@vitest/expect";
import * as chai from "chai";

chai.use(JestChaiExpect);
chai.use(JestAsymmetricMatchers);

/** For how long a polled value may take to become right, in milliseconds. */
const PATIENCE_MS = 10_000;

/** Asks for a value again and again until a matcher accepts it. */
const poll = (value: () => unknown) =>
  new Proxy(
    {},
    {
      get:
        (_, matcher) =>
        async (...args: unknown[]): Promise<void> => {
          for (const end = performance.now() + PATIENCE_MS; ; ) {
            try {
              const expected = chai.expect(await value());
              const found: unknown = Reflect.get(expected, matcher);
              if (typeof found === "function") found.apply(expected, args);
              return;
            } catch (error) {
              if (performance.now() > end) throw error;
              await new Promise((resolve) => setTimeout(resolve, 20));
            }
          }
        },
    },
  );

export const expect = Object.assign(
  (value: unknown, message?: string) => chai.expect(value, message),
  chai.expect,
  { poll },
);

type Action = (context: TestContext) => unknown;

interface TestContext {
  skip(): never;
}

class Skipped extends Error {}

/** What a test gets: it may say that it makes no sense here. */
const context: TestContext = {
  skip(): never {
    throw new Skipped();
  },
};

interface Suite {
  readonly name: string;
  readonly before: Action[];
  readonly after: Action[];
  readonly afterEach: Action[];
  readonly entries: (Suite | { readonly test: string; readonly run: Action })[];
}

const newSuite = (name: string): Suite => ({ name, before: [], after: [], afterEach: [], entries: [] });
const root = newSuite("");
const open = [root];
const current = (): Suite => open.at(-1) ?? root;

export function describe(name: string, body: () => void): void {
  const suite = newSuite(name);
  current().entries.push(suite);
  open.push(suite);
  body();
  open.pop();
}

export function test(name: string, options: object | Action, run?: Action): void {
  current().entries.push({ test: name, run: run ?? (options as Action) });
}

export const it = test;

/** Cases given as lists of arguments, or one argument each. */
test.each = (cases: readonly unknown[]) => (name: string, run: (...args: unknown[]) => unknown) => {
  cases.forEach((one, i) => {
    const args = Array.isArray(one) ? one : [one];
    test(`${name} (${i + 1})`, () => run(...args));
  });
};

export const beforeAll = (action: Action): void => void current().before.push(action);
export const afterAll = (action: Action): void => void current().after.push(action);
export const afterEach = (action: Action): void => void current().afterEach.push(action);

/** What came of the tests. */
export interface TestReport {
  readonly passed: number;
  readonly failures: readonly string[];
}

/** Runs everything that was gathered, one test after the other. */
export async function runTests(): Promise<TestReport> {
  const report = { passed: 0, failures: [] as string[] };
  const run = async (suite: Suite, path: string, after: readonly Action[]): Promise<void> => {
    for (const action of suite.before) await action(context);
    for (const entry of suite.entries) {
      if ("entries" in entry) {
        await run(entry, `${path}${entry.name} > `, [...after, ...entry.afterEach]);
        continue;
      }
      try {
        await entry.run(context);
        report.passed++;
      } catch (error) {
        if (error instanceof Skipped) continue;
        report.failures.push(
          `${path}${entry.test}: ${error instanceof Error ? error.message : String(error)}`,
        );
      }
      for (const action of after) await action(context);
    }
    for (const action of suite.after) await action(context);
  };
  await run(root, "", root.afterEach);
  return report;
}
