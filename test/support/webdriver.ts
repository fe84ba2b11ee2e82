/** What browsers that follow the WebDriver standard have in common: an expression evaluated in a page. */

/** How long a browser may take to start or to load a page, in milliseconds. */
export const START_MS = 60_000;

/** How long a script may take, in milliseconds. */
export const SCRIPT_MS = 1_800_000;

/** The limits of a session. */
export const timeouts = { script: SCRIPT_MS, pageLoad: START_MS };

/** An asynchronous script that evaluates an expression, the value of which may be a promise. */
export const scriptOf = (expression: string): string =>
  `const done = arguments[arguments.length - 1];
  Promise.resolve().then(() => ${expression}).then(
    (value) => done({ value: JSON.stringify(value) }),
    (error) => done({ error: String(error) }),
  );`;

/** The value that such a script told. */
export function valueTold(told: unknown): unknown {
  const { value, error } = told as { readonly value?: string; readonly error?: string };
  if (error !== undefined) throw new Error(error);
  return value === undefined ? undefined : JSON.parse(value);
}
