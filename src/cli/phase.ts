/** What erases a line of a terminal. */
const erase = "\r\x1b[2K";

/**
 * Shows on a terminal what a command waits for, on a line that the next call replaces; an empty text leaves none.
 * Elsewhere nothing is written.
 */
export function phase(text: string, stream: PhaseStream = process.stderr): void {
  if (stream.isTTY) stream.write(text === "" ? erase : `${erase}${text} …`);
}

/** Where the line is written. */
interface PhaseStream {
  readonly isTTY?: boolean;
  write(text: string): unknown;
}
