/** The suite on an engine that is no part of this package: `ENGINE=./my-engine.js` names another one. */
import { importEngine, openEngine } from "../../../src/engines/index.js";
import { runEngineSuite } from "./suite.js";

const name = process.env.ENGINE ?? "./test/fixtures/turnsEngine.ts";
await importEngine(name);

runEngineSuite({ name, newEngine: (numDevices) => openEngine(name, { numDevices }) });
