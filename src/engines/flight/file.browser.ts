import type * as node from "./file.js";
import { fileError } from "./recordingText.js";

const nowhere = "pages have no files: use formatRecording and parseRecording";

export const writeRecording: typeof node.writeRecording = (path) => {
  throw fileError(path, nowhere);
};

export const readRecordings: typeof node.readRecordings = (path) => {
  throw fileError(path, nowhere);
};
