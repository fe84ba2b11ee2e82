import { describePage } from "../support/pages.js";

// The suite of engines runs this file: test/conformance/engine/outside.test.ts.
describePage("engines.md", new URL("../fixtures/turnsEngine.ts", import.meta.url).href, {});
