#!/usr/bin/env node
/** The program `shardwise`. If a GPU is asked for, it opens while the modules of the commands are loaded. */
const args = process.argv.slice(2);
const ahead = asksForXla(args) ? await import("../engines/xla/openXla.js") : undefined;
const opening = ahead?.openXlaAhead();
const { exitCodes } = await import("./command.js");
const { main } = await import("./runCommand.js");
const { respectNohup } = await import("./stopSignals.js");
const { systemCode } = await import("../train/files/disk/fileError.js");
await run();

/** Runs the command and ends the process once its output is written. */
async function run(): Promise<void> {
  respectNohup();
  // If standard error is closed, a run continues without it.
  process.stderr.on("error", () => {});
  let outputFailure: Error | undefined;
  process.stdout.on("error", (error) => {
    outputFailure ??= error;
  });
  const code = await main(args);
  // A process must not end while another thread opens its devices.
  await opening;
  // The engine's workers would keep the process alive, so it exits explicitly once the output is flushed.
  process.stdout.write("", async () => {
    // Streams report failures asynchronously.
    await new Promise((resolve) => setImmediate(resolve));
    // A reader such as `head` that closes the pipe early is not a failure.
    const failed = outputFailure !== undefined && systemCode(outputFailure) !== "EPIPE";
    if (failed)
      process.stderr.write(`shardwise: standard output could not be written (${outputFailure?.message})\n`);
    process.stderr.write("", () => process.exit(failed && code === exitCodes.ok ? exitCodes.failure : code));
  });
}

/** Whether a command is to run on XLA. */
function asksForXla(args: readonly string[]): boolean {
  const [option, name] = args.slice(args.findIndex((argument) => /^--engine(=|$)/.test(argument)));
  return option === "--engine=xla" || (option === "--engine" && name === "xla");
}
