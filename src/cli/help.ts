import { type Field, fieldsOf } from "../train/config/configSchema.js";
import { runSchema } from "../train/config/runConfig.js";
import type { Command } from "./command.js";

const codes = [
  "Exit codes:",
  "  0    done",
  "  1    failed: a file, a full disk, a device, or a loss that is not a number",
  "  2    wrong command line or configuration; nothing was run",
  "  130  interrupted; the step was finished and a checkpoint saved",
].join("\n");

/** Width of the help text in columns. */
const lineWidth = 80;

/** Names with descriptions next to them; long lines are wrapped, first at explicit breaks. */
function columns(rows: readonly (readonly [string, string])[]): string {
  const width = Math.max(0, ...rows.map(([name]) => name.length));
  const room = lineWidth - width - 4;
  return rows
    .flatMap(([name, text]) => {
      const line = text.replaceAll("\n", " ");
      const lines = line.length <= room ? [line] : text.split("\n").flatMap((part) => wrap(part, room));
      return lines.map((one, i) => `  ${(i === 0 ? name : "").padEnd(width)}  ${one}`);
    })
    .join("\n");
}

function wrap(text: string, width: number): string[] {
  const lines: string[] = [];
  for (const word of text.split(" ")) {
    const last = lines.at(-1);
    if (last !== undefined && last.length + 1 + word.length <= width)
      lines[lines.length - 1] = `${last} ${word}`;
    else lines.push(word);
  }
  return lines;
}

/** The help text of the whole program. */
export function generalHelp(commands: readonly Command[]): string {
  return [
    "shardwise trains language models in parallel on the devices of this machine.",
    "",
    "Usage: shardwise <command> [arguments]",
    "",
    "Commands:",
    columns([
      ...commands.map(({ name, summary }) => [name, summary] as const),
      ["help [command]", "this text, or that of a command"],
    ]),
    "",
    "Options:",
    columns([
      ["--help", "the same as help"],
      ["--version", "the version of shardwise"],
    ]),
    "",
    codes,
    "",
  ].join("\n");
}

/** The description of an option, and its default. */
function helpOf({ help, default: value }: Field<unknown>): string {
  return typeof value === "number" || (typeof value === "string" && value !== "")
    ? `${help}; ${value} by default`
    : help;
}

/** The help text of a command. */
export function commandHelp(command: Command): string {
  const { name, summary, usage, options, takesFields, examples } = command;
  const fields = [...fieldsOf(runSchema)].map(
    ([path, field]) =>
      [`--${path}`, `${field.help}\n(${field.accepts}; ${JSON.stringify(field.default)})`] as const,
  );
  const all = [
    ...Object.entries(options).map(([option, field]) => [`--${option}`, helpOf(field)] as const),
    ["--help", "this text"] as const,
  ];
  return [
    `shardwise ${name}: ${summary}`,
    "",
    `Usage: shardwise ${name} ${usage}`,
    "",
    "Options:",
    columns(all),
    ...(takesFields
      ? [
          "",
          "Fields of the configuration, in the file or as options:",
          columns([["--mesh data=2,model=2", "sizes of the mesh's axes; those not named are 1"], ...fields]),
        ]
      : []),
    "",
    "Examples:",
    ...examples.map((line) => `  ${line}`),
    "",
    codes,
    "",
  ].join("\n");
}
