import type { BuildOptions, BuildResult } from "esbuild";

/** The module that holds the code of a Web Worker, given the source it starts from. */
export function workerModule(source: string): Promise<string>;

/** Bundles an entry point, or code given as `stdin`, into ES modules; returns esbuild's result. */
export function bundleForBrowser<T extends BuildOptions>(options: T): Promise<BuildResult<T & { write: false }>>;
