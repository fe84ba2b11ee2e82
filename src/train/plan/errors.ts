import { ShardwiseError } from "../../ir/errors.js";

/** A plan that cannot be made of what was given; the command line ends with code 2. */
export class ConfigError extends ShardwiseError {
  constructor(message: string) {
    super("config", message);
  }
}
