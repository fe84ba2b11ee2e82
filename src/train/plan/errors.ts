import { ShardwiseError } from "../../ir/errors.js";

/** A plan that cannot be made from its inputs; the command line exits with code 2. */
export class ConfigError extends ShardwiseError {
  static override readonly name: string = "ConfigError";
  constructor(message: string) {
    super("config", message);
  }
}
