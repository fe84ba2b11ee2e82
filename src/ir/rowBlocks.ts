import { ValueError } from "./errors.js";

/** Throws unless a block of rows that is sent or received lies inside of its tensor. */
export function checkRows(start: number, size: number, rows: number, what: string): void {
  if (start >= 0 && size >= 0 && start + size <= rows) return;
  throw new ValueError(
    `[raggedAllToAll] rows ${start} to ${start + size} leave ${what}, which has ${rows} rows: offsets and sizes must stay inside`,
  );
}
