import { at } from "../../../src/ir/shape.js";
import { openProcesses } from "../../support/processes.js";
import { runEngineSuite } from "./suite.js";

// One process alone holds all devices, so that everything an engine must do applies to what plays processes.
runEngineSuite({
  name: "one of one process",
  newEngine: (numDevices) => at(openProcesses(1, numDevices), 0),
});
