import { results } from "./results.js";

// CommonJS, one of the formats, has no `await` outside of functions.
results().then((found) => console.log(JSON.stringify(found)));
