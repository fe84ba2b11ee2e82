import { createThreadsEngine } from "../src/engines/index.js";
import { describeGoldens } from "./support/goldenSuite.js";

describeGoldens("threads", (numDevices) => createThreadsEngine({ numDevices }));
