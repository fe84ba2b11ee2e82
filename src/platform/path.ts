/** Paths of files; those of pages have slashes. */
export { basename, dirname, extname, join } from "node:path";
