import { createReferenceEngine } from "../src/engines/index.js";
import { describeGoldens } from "./support/goldenSuite.js";

describeGoldens("reference", (numDevices) => createReferenceEngine({ numDevices }));
