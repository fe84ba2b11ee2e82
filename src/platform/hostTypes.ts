/**
 * Classes of Node and browsers that the public API takes. Where a project has Node's declarations or the DOM's, these are
 * the types declared there; one that has neither can still check its own code.
 */
type Declared<Name extends string, Otherwise> =
  typeof globalThis extends Readonly<Record<Name, { readonly prototype: infer Instance }>>
    ? Instance
    : Otherwise;

/** An `AbortSignal`. */
export interface AbortSignalLike extends Declared<"AbortSignal", { readonly aborted: boolean }> {}

/** A `URL`. */
export interface UrlLike extends Declared<"URL", { readonly href: string }> {}

/** A `Blob`, such as a `File` that a user picked. */
export interface BlobLike extends Declared<"Blob", { readonly size: number }> {}
