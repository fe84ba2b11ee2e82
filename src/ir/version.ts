/** The version of this package, as package.json has it, which a bundled program does not have beside it. */
export const version = "0.2.0";
