import { ShardwiseError } from "../ir/errors.js";
import { nearest, type Setting } from "../train/schema.js";

/** Wrong use of the command line; the process ends with code 2. */
export class UsageError extends ShardwiseError {
  constructor(message: string) {
    super("config", message);
  }
}

/** A command line taken apart. */
export interface Arguments {
  readonly positional: readonly string[];
  /** Options that are not part of a configuration, such as `--resume`. */
  readonly options: ReadonlyMap<string, string | true>;
  /** Options that set fields of the configuration: `--model.width 256`, `--steps 10`. */
  readonly settings: readonly Setting[];
}

/** What a command accepts besides configuration fields. */
export interface Accepted {
  /** Options with a value. */
  readonly values: readonly string[];
  /** Options without one. */
  readonly switches: readonly string[];
  /** The paths of configuration fields; empty when the command takes none. */
  readonly fields: readonly string[];
}

/**
 * Takes arguments apart: `--name value`, `--name=value`, and `--mesh data=2,model=2` for the axes of a mesh. All
 * unknown options are reported at once, with what was probably meant.
 */
export function parseArguments(args: readonly string[], accepted: Accepted): Arguments {
  const positional: string[] = [];
  const options = new Map<string, string | true>();
  const settings: Setting[] = [];
  const problems: string[] = [];
  const all = [
    ...accepted.values,
    ...accepted.switches,
    ...accepted.fields,
    ...(accepted.fields.length > 0 ? ["mesh"] : []),
  ];
  for (let i = 0; i < args.length; i++) {
    const argument = args[i] ?? "";
    if (!argument.startsWith("--")) {
      positional.push(argument);
      continue;
    }
    const equals = argument.indexOf("=");
    const name = argument.slice(2, equals > 0 ? equals : undefined);
    const inline = equals > 0 ? argument.slice(equals + 1) : undefined;
    if (accepted.switches.includes(name)) {
      options.set(name, inline ?? true);
      continue;
    }
    if (!all.includes(name)) {
      const near = nearest(name, all);
      problems.push(`unknown option --${name}${near ? `; did you mean --${near}?` : ""}`);
      if (inline === undefined && args[i + 1]?.startsWith("--") === false) i++;
      continue;
    }
    const value = inline ?? args[++i];
    if (value === undefined || (inline === undefined && value.startsWith("--"))) {
      problems.push(`option --${name} needs a value`);
      if (value !== undefined) i--;
    } else if (name === "mesh" && accepted.fields.length > 0)
      settings.push(...meshSettings(value, accepted.fields, problems));
    else if (accepted.values.includes(name)) options.set(name, value);
    else settings.push({ path: name, value });
  }
  if (problems.length > 0) throw new UsageError(problems.join("\n"));
  return { positional, options, settings };
}

/** `data=2,model=2`: axes that are not named have one device. */
function meshSettings(text: string, fields: readonly string[], problems: string[]): Setting[] {
  const axes = fields.filter((path) => path.startsWith("mesh.")).map((path) => path.slice("mesh.".length));
  const sizes = new Map(axes.map((axis) => [axis, "1"]));
  for (const part of text.split(",").filter((piece) => piece !== "")) {
    const [axis = "", size = ""] = part.split("=");
    const near = nearest(axis, axes);
    if (!sizes.has(axis)) {
      problems.push(
        `--mesh: unknown axis "${axis}"; the axes are ${axes.join(", ")}${near ? `; did you mean ${near}?` : ""}`,
      );
    } else if (!/^[1-9]\d*$/.test(size)) {
      problems.push(`--mesh: axis ${axis} needs a whole number of devices, as in ${axis}=2, got "${part}"`);
    } else sizes.set(axis, size);
  }
  return [...sizes].map(([axis, value]) => ({ path: `mesh.${axis}`, value }));
}
