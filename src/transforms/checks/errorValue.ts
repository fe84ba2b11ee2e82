import type { HostValue } from "../../ir/callbacks.js";
import { CheckError } from "../../ir/errors.js";
import { newCounter } from "../../ir/identity.js";
import { at, range, sizeOf } from "../../ir/shape.js";
import type { HostArray } from "../../trace/hostArray.js";
import type { Tensor } from "../../trace/tensor.js";
import { registerClass } from "../../trace/tree.js";
import { type Describe, elementAt } from "./checks.js";

/** One check of a program. */
export interface CheckSite {
  readonly describe: Describe;
  /** The offset of the values for its message among those that the error keeps. */
  readonly offset: number;
  readonly numKept: number;
  /** The line that it came from. */
  readonly source: string | undefined;
}

const nextTable = newCounter();

/** The checks of a program; an error holds the number of one of them, counted from 1. */
export class CheckSiteTable {
  /** Identifies the table. */
  readonly id = nextTable();
  private readonly sites: CheckSite[] = [];

  /** Adds a check and returns its number. */
  add(site: CheckSite): number {
    return this.sites.push(site);
  }

  /** The message of a failed check and where it was written, from its number and the kept values. */
  tell(code: number, kept: readonly HostArray[]): { readonly message: string; readonly source?: string } {
    const { describe, offset, numKept, source } = at(this.sites, code - 1);
    const message = describe(kept.slice(offset, offset + numKept));
    return source === undefined ? { message } : { message, source };
  }
}

/** The first error of a function made by `checkify`, or none: an ordinary value for `jit`, `vmap`, loops and trees. */
export class ErrorValue {
  /** @internal */
  constructor(
    /** @internal The number of the check, 0 for none. */
    readonly code: Tensor,
    /** @internal The kept values of every kind of check. */
    readonly kept: readonly Tensor[],
    /** @internal */
    readonly sites: CheckSiteTable,
  ) {}

  /**
   * The message of the first error, or `null`. Under `vmap` there is a line for each element: `at mapped index 2: …`.
   *
   * ```ts
   * console.log(await error.get());
   * ```
   */
  async get(): Promise<string | null> {
    const found = await this.findings();
    return found.length === 0 ? null : found.map(({ where, message }) => where + message).join("\n");
  }

  /** Throws a `CheckError` if there was an error; its message also names the line. */
  async throw(): Promise<void> {
    const found = await this.findings();
    if (found.length === 0) return;
    const lines = found.map(
      ({ where, message, source }) => where + message + (source ? `\n  at ${source}` : ""),
    );
    throw new CheckError(lines.join("\n"));
  }

  private async findings() {
    const [code, ...kept] = await Promise.all([this.code, ...this.kept].map(download));
    if (!code) return [];
    const { shape } = code.type;
    return range(sizeOf(shape)).flatMap((i) => {
      const number = code.data[i] ?? 0;
      if (number === 0) return [];
      const values = kept.map((value) => elementAt(value, shape.length, i));
      const where = shape.length === 0 ? "" : `at mapped index ${positionOf(i, shape).join(", ")}: `;
      return [{ where, ...this.sites.tell(number, values) }];
    });
  }

  /** @internal The message, from the elements of `[code, …kept]`. */
  get describe(): Describe {
    return ([code, ...kept]) => this.sites.tell(code?.item() ?? 1, kept).message;
  }
}

async function download(x: Tensor): Promise<HostValue> {
  return { type: x.type, data: await x.storage("checkify").download("checkify") };
}

/** A row-major index as one index per dim. */
function positionOf(index: number, shape: readonly number[]): number[] {
  return shape.map((n, d) => Math.floor(index / sizeOf(shape.slice(d + 1))) % n);
}

registerClass(ErrorValue, {
  children: ({ code, kept }): [Tensor, readonly Tensor[]] => [code, kept],
  rebuild: ({ sites }, [code, kept]) => new ErrorValue(code, kept, sites),
  describe: ({ sites }) => `checks ${sites.id}`,
});
