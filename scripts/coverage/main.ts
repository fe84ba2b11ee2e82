/** Prints which names of JAX, Flax and optax are here and which are missing, and writes docs/jax.md: `npm run coverage`. */
import { writeFileSync } from "node:fs";
import { exported } from "./exports.js";
import { libraries } from "./libraries.js";
import { countPresent, coveragePage, percent, standings } from "./page.js";

for (const library of libraries) {
  const rows = standings(library, exported);
  const absent = rows.flatMap(({ name, state }) =>
    state === "present" ? [] : [state === "missing" ? name : `(${name})`],
  );
  console.log(
    `${library.title.padEnd(20)} ${`${countPresent(rows)} of ${rows.length}`.padStart(10)} ${percent(rows).toFixed(1).padStart(6)} %  ${absent.join(" ")}`,
  );
}
writeFileSync(new URL("../../docs/jax.md", import.meta.url), coveragePage(libraries, exported));
console.log("docs/jax.md written; names in brackets are left out with a reason given there");
