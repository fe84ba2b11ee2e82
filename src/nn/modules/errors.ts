import { ShardwiseError } from "../../ir/errors.js";

/** What went wrong in a module. */
export type ModuleErrorReason =
  | "name-in-use"
  | "param-not-found"
  | "param-shape"
  | "variable-not-found"
  | "collection-not-found"
  | "immutable-collection"
  | "missing-rng"
  | "no-scope"
  | "unbound-module"
  | "closed-scope"
  | "leaked-variable"
  | "variables"
  | "partition-name"
  | "lift"
  | "argument";

/** A module was defined or used wrongly; `reason` is stable, the message names the path in the module tree. */
export class ModuleError extends ShardwiseError {
  static override readonly name: string = "ModuleError";
  readonly reason: ModuleErrorReason;

  constructor(reason: ModuleErrorReason, message: string) {
    super("module", message);
    this.reason = reason;
  }
}

/** A path in the module tree as messages show it. */
export function formatPath(path: readonly string[]): string {
  return path.length === 0 ? "the outermost module" : `/${path.join("/")}`;
}
