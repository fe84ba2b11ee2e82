/** Writes the code of the pages as files, so that the type checker reads it with everything else. */
import { completePages, removePrograms, writePrograms } from "./programs.js";

removePrograms();
writePrograms(completePages);
