import { readBackTexts } from "./readBack.js";

// Setup files run before every test file, what they import once in a process.
readBackTexts();
