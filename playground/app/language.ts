/** Asks the worker of the TypeScript language service. */
import type { Completion, Hover, Mistake, ToLanguage } from "../workers/language.js";
import { lazily } from "./lazily.js";

type Ask = (message: ToLanguage) => Promise<unknown>;

const start = lazily(async (): Promise<Ask> => {
  const response = await fetch("types.json");
  if (!response.ok)
    throw new Error(`the types could not be loaded: ${response.status} ${response.statusText}`);
  const files = (await response.json()) as Record<string, string>;
  const worker = new Worker("language.js");
  const open = new Map<number, { resolve(value: unknown): void; reject(error: Error): void }>();
  let next = 0;
  worker.onmessage = ({ data }: MessageEvent<{ id: number; value?: unknown; error?: string }>) => {
    const asked = open.get(data.id);
    open.delete(data.id);
    if (data.error === undefined) asked?.resolve(data.value);
    else asked?.reject(new Error(data.error));
  };
  worker.onerror = ({ message }) => {
    for (const { reject } of open.values())
      reject(new Error(message || "the language service did not start"));
    open.clear();
  };
  const ask: Ask = (message) =>
    new Promise((resolve, reject) => {
      const id = next++;
      open.set(id, { resolve, reject });
      worker.postMessage({ id, message });
    });
  await ask({ kind: "load", files });
  return ask;
});

/** What the browser can run, or the mistake that stands in its way. */
export const compile = async (code: string) =>
  (await (
    await start()
  )({ kind: "compile", code })) as { readonly code: string } | { readonly mistake: Mistake };

/** The mistakes in a program. */
export const check = async (code: string) => (await (await start())({ kind: "check", code })) as Mistake[];

/** What can stand at a place. */
export const complete = async (code: string, at: number) =>
  (await (
    await start()
  )({ kind: "complete", code, at })) as Completion[];

/** What the name at a place is. */
export const hover = async (code: string, at: number) =>
  (await (
    await start()
  )({ kind: "hover", code, at })) as Hover | undefined;
