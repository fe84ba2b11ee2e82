import { createReferenceEngine } from "../../../src/engines/reference/engine.js";
import { runEngineSuite } from "./suite.js";

runEngineSuite({ name: "reference", newEngine: () => createReferenceEngine() });
