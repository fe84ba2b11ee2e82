/** Makes docs/performance.md of the measurements in docs/performance: `npm run performance`. */
import { writePerformancePage } from "./writePerformancePage.js";

writePerformancePage();
