import { errorClass } from "../ir/errors.js";
import { nearest } from "../ir/nearest.js";
import type { Setting } from "../train/config/configSchema.js";

/** Invalid use of the command line; the process exits with code 2. */
export class UsageError extends errorClass("UsageError", "config") {}

/** A parsed command line. */
export interface ParsedArguments {
  readonly positional: readonly string[];
  /** Options that are not part of a configuration, such as `--resume`. */
  readonly options: ReadonlyMap<string, string | true>;
  /** Options that set fields of the configuration: `--model.width 256`, `--steps 10`. */
  readonly settings: readonly Setting[];
  /** What is wrong with the command line, as sentences. */
  readonly problems: readonly string[];
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
 * Parses arguments: `--name value`, `--name=value`, `--mesh data=2,model=2` for the axes of a mesh, and `--tune lora` for `--tune.kind`. All
 * unknown options are reported at once, with what was probably meant.
 */
export function parseArguments(args: readonly string[], accepted: Accepted): ParsedArguments {
  const positional: string[] = [];
  const options = new Map<string, string | true>();
  const settings: Setting[] = [];
  const problems: string[] = [];
  const given = new Map<string, string>();
  const all = [
    ...accepted.values,
    ...accepted.switches,
    ...accepted.fields,
    ...(accepted.fields.length > 0 ? ["mesh", "tune"] : []),
  ];
  for (let i = 0; i < args.length; i++) {
    const argument = args[i] ?? "";
    if (!argument.startsWith("--") && !isMistyped(argument)) {
      positional.push(argument);
      continue;
    }
    const equals = argument.indexOf("=");
    const name = argument.slice(argument.startsWith("--") ? 2 : 1, equals > 0 ? equals : undefined);
    if (!argument.startsWith("--")) {
      const near = nearest(name, all);
      problems.push(
        `unknown option -${name}${near ? `; did you mean --${near}?` : ": options start with --"}`,
      );
      if (inlineValueFollows(args, i, equals)) i++;
      continue;
    }
    const inline = equals > 0 ? argument.slice(equals + 1) : undefined;
    if (accepted.switches.includes(name)) {
      if (inline !== undefined) problems.push(`option --${name} takes no value, got "${inline}"`);
      options.set(name, true);
      continue;
    }
    if (!all.includes(name)) {
      const near = nearest(name, all);
      problems.push(`unknown option --${name}${near ? `; did you mean --${near}?` : ""}`);
      if (inlineValueFollows(args, i, equals)) i++;
      continue;
    }
    const value = inline ?? args[++i];
    if (value === undefined || (inline === undefined && value.startsWith("--"))) {
      problems.push(`option --${name} needs a value`);
      if (value !== undefined) i--;
      continue;
    }
    const before = given.get(name);
    if (before !== undefined && before !== value)
      problems.push(`option --${name} is given twice, as "${before}" and as "${value}": give it once`);
    given.set(name, value);
    if (accepted.values.includes(name)) options.set(name, value);
    else settings.push(...settingsOf(name, value, accepted.fields, problems));
  }
  const axis = [...given.keys()].find((name) => name.startsWith("mesh."));
  if (axis !== undefined && given.has("mesh"))
    problems.push(`options --mesh and --${axis} both set the sizes of axes: use one of them`);
  return { positional, options, settings, problems };
}

/** What an option sets: the field of its name, or what it abbreviates. */
function settingsOf(name: string, value: string, fields: readonly string[], problems: string[]): Setting[] {
  if (name === "mesh") return meshSettings(value, fields, problems);
  return [{ path: name === "tune" ? "tune.kind" : name, value }];
}

/** Whether an argument looks like an option with one dash too few, and not like a number or standard input. */
function isMistyped(argument: string): boolean {
  return /^-[A-Za-z]/.test(argument);
}

/** Whether the argument after an unknown option is its value. */
function inlineValueFollows(args: readonly string[], index: number, equals: number): boolean {
  return equals < 0 && args[index + 1]?.startsWith("-") === false;
}

/** `data=2,model=2`: axes that are not named have one device. */
function meshSettings(text: string, fields: readonly string[], problems: string[]): Setting[] {
  const axes = fields.filter((path) => path.startsWith("mesh.")).map((path) => path.slice("mesh.".length));
  return [...parseAxes(text, axes, problems)].map(([axis, value]) => ({ path: `mesh.${axis}`, value }));
}

/** The sizes of axes in a text such as `data=2,model=2`; problems are added to a list. */
export function parseAxes(text: string, axes: readonly string[], problems: string[]): Map<string, string> {
  const sizes = new Map(axes.map((axis) => [axis, "1"]));
  const named = new Set<string>();
  for (const part of text.split(",").map((piece) => piece.trim())) {
    const [axis = "", ...rest] = part.split("=");
    const size = rest.join("=");
    const near = nearest(axis, axes);
    if (!sizes.has(axis)) {
      problems.push(
        `--mesh: unknown axis "${axis}"; the axes are ${axes.join(", ")}${near ? `; did you mean ${near}?` : ""}`,
      );
    } else if (named.has(axis)) {
      problems.push(`--mesh: axis ${axis} is named twice, in "${text}": give its size once`);
    } else if (!/^[1-9]\d{0,8}$/.test(size)) {
      const whole = Math.max(1, Math.round(Number(size)));
      const close = Number.isSafeInteger(whole) && size.trim() !== "" ? whole : 2;
      problems.push(
        `--mesh: axis ${axis} needs at least 1 device, an integer, as in ${axis}=${close}, got "${part}"`,
      );
    } else sizes.set(axis, size);
    named.add(axis);
  }
  return sizes;
}
