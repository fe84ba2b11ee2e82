import { createWebGpuEngine } from "../../../src/engines/webgpu/engine.js";
import { describeWith, webGpu } from "../../support/optional.js";
import { withoutFloat64 } from "../../support/withoutFloat64.js";
import { leftToDriver } from "./leftToDriver.js";
import { runEngineSuite } from "./suite.js";

describeWith(webGpu, "WebGPU in Node", () => {
  runEngineSuite({
    name: "webgpu",
    newEngine: (numDevices) => createWebGpuEngine({ numDevices }),
    skip: [withoutFloat64],
    allowances: leftToDriver,
  });
});
