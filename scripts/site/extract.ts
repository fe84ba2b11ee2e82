/** Writes the code of the pages as files, so that the checker of types reads it with everything else. */
import { completePages, removePrograms, writePrograms } from "./programs.js";

removePrograms();
writePrograms(completePages);
