import { createOneThreadEngine } from "../../../src/engines/oneThread/engine.js";
import { runEngineSuite } from "./suite.js";

runEngineSuite({ name: "oneThread", newEngine: (numDevices) => createOneThreadEngine({ numDevices }) });
