import { createThreadsEngine } from "../../../src/engines/threads/engine.js";
import { runEngineSuite } from "./suite.js";

runEngineSuite({
  name: "threads",
  newEngine: (numDevices) => createThreadsEngine({ numDevices, deadlineMs: 60_000 }),
});
