import type * as node from "./path.js";

/** The names that a path consists of, without those that lead nowhere. */
export function namesOf(path: string): string[] {
  const names: string[] = [];
  for (const name of path.split("/")) {
    if (name === ".." && names.length > 0) names.pop();
    else if (name !== "" && name !== "." && name !== "..") names.push(name);
  }
  return names;
}

/** The scheme and host of a URL, which are kept as they are; those of files are empty. */
const startOf = (path: string) => /^(?:[a-z]+:(?:\/\/[^/]*)?)?\/?/.exec(path)?.[0] ?? "";

export const join: typeof node.join = (first, ...rest) => {
  const start = startOf(first ?? "");
  return start + namesOf([(first ?? "").slice(start.length), ...rest].join("/")).join("/");
};

export const dirname: typeof node.dirname = (path) => {
  const start = startOf(path);
  return start + namesOf(path.slice(start.length)).slice(0, -1).join("/") || ".";
};

export const basename: typeof node.basename = (path, suffix = "") => {
  const name = namesOf(path).at(-1) ?? "";
  return suffix !== "" && name !== suffix && name.endsWith(suffix) ? name.slice(0, -suffix.length) : name;
};

export const extname: typeof node.extname = (path) => /[^./]\.[^./]*$/.exec(path)?.[0].slice(1) ?? "";
