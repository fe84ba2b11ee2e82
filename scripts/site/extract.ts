/** Writes the code of the pages as files, so that the checker of types reads it with everything else. */
import { removePrograms, runnablePages, writePrograms } from "./programs.js";

removePrograms();
writePrograms(runnablePages());
