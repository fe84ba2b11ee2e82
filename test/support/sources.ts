import { fileURLToPath } from "node:url";

const src = fileURLToPath(new URL("../../src", import.meta.url));

/** What the package's own names mean in tests: its sources. */
export const resolve = {
  alias: [
    // What `imports` of package.json says, for the sources.
    { find: /^#(.+)$/, replacement: `${src}/$1.ts` },
    { find: /^shardwise$/, replacement: `${src}/index.ts` },
    { find: /^shardwise\/(.+)$/, replacement: `${src}/$1/index.ts` },
  ],
};
