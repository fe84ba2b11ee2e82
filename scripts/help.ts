/** Prints the scripts of package.json by purpose: `npm run help`. */
import { formatHelp } from "./commandList.js";

console.log(formatHelp());
