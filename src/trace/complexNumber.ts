/** Complex numbers of the host. */
import { anyNumber, need } from "../ir/arguments.js";
import { describe } from "../ir/describe.js";
import { DTypeError } from "../ir/errors.js";

/** A complex number, as {@link complex} makes it and `js()` returns it. */
export class Complex {
  readonly re: number;
  readonly im: number;

  constructor(re: number, im: number) {
    need(anyNumber, re, "re", "complex");
    need(anyNumber, im, "im", "complex");
    this.re = re;
    this.im = im;
    Object.freeze(this);
  }

  /** The number as JAX prints it, such as `1-2j`. */
  toString(): string {
    return formatComplex(this, String);
  }

  [Symbol.for("nodejs.util.inspect.custom")](): string {
    return this.toString();
  }
}

/**
 * A complex number, which takes part in arithmetic as JavaScript numbers do.
 *
 * ```ts
 * np.mul(z, complex(0, 1))
 * ```
 *
 * @example
 * ```ts
 * String(complex(1, 2)); // "1+2j"
 * ```
 */
export function complex(re: number, im = 0): Complex {
  return new Complex(re, im);
}

/** A complex number as a string, its parts formatted by `written`. */
export function formatComplex({ re, im }: Complex, written: (part: number) => string): string {
  const second = written(im);
  return `${written(re)}${second.startsWith("-") ? "" : "+"}${second}j`;
}

/** Both parts of a number. */
export function partsOfNumber(value: number | boolean | Complex): readonly [re: number, im: number] {
  if (value instanceof Complex) return [value.re, value.im];
  if (typeof value === "number" || typeof value === "boolean") return [Number(value), 0];
  throw new DTypeError(`a scalar must be a number, a boolean or complex(re, im), got ${describe(value)}`);
}
