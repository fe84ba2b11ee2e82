/** Describes a value for messages; never throws. */
export function describe(value: unknown): string {
  if (value === null || value === undefined) return String(value);
  if (Array.isArray(value)) return `a list of ${value.length}`;
  if (typeof value === "string") return JSON.stringify(value.slice(0, 40));
  if (typeof value === "number" || typeof value === "boolean") return String(value);
  if (typeof value !== "object") return `a ${typeof value}`;
  if (ArrayBuffer.isView(value)) return withArticle(describeClass(value) ?? "typed array");
  const text = ownText(value);
  if (text !== undefined) return text;
  return withArticle(describeClass(value) ?? "object");
}

const withArticle = (name: string): string => (/^[AEIOU]/i.test(name) ? `an ${name}` : `a ${name}`);

/** Whether an object is a plain one, `{ … }`, not an instance of a class. */
export function isPlain(value: object): boolean {
  const prototype: unknown = Object.getPrototypeOf(value);
  return typeof prototype !== "object" || prototype === null || prototype === Object.prototype;
}

/** Plain data as JSON, anything else as {@link describe} gives it. */
export function show(value: unknown): string {
  try {
    return JSON.stringify(value)?.slice(0, 200) ?? describe(value);
  } catch {
    return describe(value);
  }
}

/** The name of an object's class, unless it is a plain object or the name is of no use. */
function describeClass(value: object): string | undefined {
  if (isPlain(value)) return undefined;
  const { name } = Object.getPrototypeOf(value).constructor ?? {};
  return typeof name === "string" && name !== "" ? name : undefined;
}

/** What `toString` returns, such as `Tensor f32[2]`; undefined for the default `[object …]`. */
function ownText(value: object): string | undefined {
  if (value instanceof Date) return undefined;
  try {
    const text = String(value);
    return text.startsWith("[object ") ? undefined : text.slice(0, 80);
  } catch {
    return undefined;
  }
}
