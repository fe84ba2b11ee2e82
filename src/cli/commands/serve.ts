import { integer, maxPort, optionalInteger, optionalText, text } from "../../train/config/configSchema.js";
import { openTextServer, type TextServer } from "../../train/serve/textServer.js";
import { defineCommand, exitCodes } from "../command.js";
import { UsageError } from "../commandLine.js";
import { phase } from "../phase.js";
import { engineOption, useEngine } from "../runArguments.js";
import { modelOptions, openModel, placementOf, usualLength } from "../textModels.js";

const options = {
  host: text("127.0.0.1", "the address to listen on; one that other machines can reach needs a key"),
  port: integer(8000, "the port to listen on, or 0 for any that is free", 0, maxPort),
  key: optionalText(
    "the key that requests must send; SHARDWISE_KEY does the same and does not show in process lists",
  ),
  name: optionalText("what clients call the model; the name of the folder by default"),
  slots: integer(8, "number of texts that are continued at once"),
  "max-length": optionalInteger(
    `maximum number of tokens of a text with its prompt; what the model was trained on, up to ${usualLength}, by default`,
    2,
  ),
  "max-tokens": integer(1024, "maximum number of tokens that a request may ask for"),
  "max-waiting": integer(64, "number of texts that may wait for a slot before requests are refused", 0),
  "max-connections": integer(512, "number of connections that are accepted at once"),
  "max-body": integer(2 ** 20, "maximum number of bytes of a request's body"),
  timeout: integer(600, "seconds until an answer must be complete"),
  ...modelOptions,
  draft: optionalText("folder of a smaller model with the same tokeniser that proposes tokens"),
  "draft-tokens": integer(4, "number of tokens that the draft proposes at a time"),
  shutdown: integer(30, "seconds that running requests may take to finish after SIGINT or SIGTERM", 0),
  ...engineOption,
};

/** Serves a model to clients of OpenAI's interface. */
export const serve = defineCommand({
  name: "serve",
  summary: "serve a model with OpenAI's HTTP interface",
  usage: "<run, checkpoint or Hugging Face folder> [options]",
  options,
  takesFields: false,
  examples: [
    "shardwise serve runs/default",
    "SHARDWISE_KEY=… shardwise serve models/llama --host 0.0.0.0 --port 8080 --slots 16",
  ],
  run: async (parsed) => {
    const { values } = parsed;
    const key = values.key ?? (process.env.SHARDWISE_KEY || undefined);
    await useEngine(parsed);
    phase("loading the model");
    const placement = placementOf(values);
    const model = await openModel(parsed.positional[0], "serve", placement);
    const draft = values.draft === undefined ? undefined : await openModel(values.draft, "serve", placement);
    // Caches for all that a model could read may not fit into memory.
    const length = Math.min(values["max-length"] ?? usualLength, model.maxLength);
    if (values["max-length"] !== undefined && values["max-length"] > model.maxLength) {
      throw new UsageError(
        `--max-length is ${values["max-length"]}: the model was trained on texts of ${model.maxLength} tokens`,
      );
    }
    const served = {
      ...{ ...model, name: values.name ?? model.name, maxLength: length },
      ...(draft && { draft: { model: draft.config, params: draft.params, count: values["draft-tokens"] } }),
    };
    const server = await openTextServer(served, {
      ...{ host: values.host, port: values.port, key, slots: values.slots },
      ...{ maxWaiting: values["max-waiting"], maxTokens: values["max-tokens"] },
      ...{ maxConnections: values["max-connections"], maxBodyBytes: values["max-body"] },
      ...{ timeout: values.timeout * 1000, stall: 30_000 },
    });
    phase("");
    process.stdout.write(
      `serving ${served.name} at ${server.address}/v1 with ${values.slots} slots of ${length} tokens; Ctrl-C ends it\n`,
    );
    await untilStopped(server, values.shutdown);
    return exitCodes.ok;
  },
});

/** Waits for a signal, then for running requests; a second signal ends the process at once. */
async function untilStopped(server: TextServer, seconds: number): Promise<void> {
  await new Promise<void>((stop) => {
    let first: number | undefined;
    const listener = () => {
      const now = performance.now();
      // Within a tenth of a second, a second signal is the same keypress, forwarded by npm.
      if (first !== undefined && now - first > 100) process.exit(exitCodes.interrupted);
      first ??= now;
      stop();
    };
    process.on("SIGINT", listener);
    process.on("SIGTERM", listener);
  });
  const { active, waiting } = server.load;
  process.stderr.write(
    `\nfinishing ${active + waiting} texts, for at most ${seconds} s; press Ctrl-C again to stop at once\n`,
  );
  await server.close(seconds * 1000);
}
