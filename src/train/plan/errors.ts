import { errorClass } from "../../ir/errors.js";

/** A plan that cannot be made from its inputs; the command line exits with code 2. */
export class ConfigError extends errorClass("ConfigError", "config") {}
