import { spawnSync } from "node:child_process";
import { existsSync, readdirSync } from "node:fs";
import { join } from "node:path";
import { XlaPluginError } from "../errors.js";

const install =
  'install jax for CUDA, for example with `pip install "jax[cuda13]"`, or set SHARDWISE_PJRT_PLUGIN to the path of a PJRT plug-in';

/**
 * The path of the PJRT plug-in to load: `SHARDWISE_PJRT_PLUGIN`, or else that of jax's CUDA or TPU wheels, installed
 * for the Python that `SHARDWISE_PYTHON` names or for `python3`.
 */
export function locatePlugin(environment: NodeJS.ProcessEnv = process.env): string {
  const named = environment.SHARDWISE_PJRT_PLUGIN;
  if (named !== undefined && named !== "") {
    if (existsSync(named)) return named;
    throw new XlaPluginError(`SHARDWISE_PJRT_PLUGIN is "${named}", but there is no such file: ${install}`);
  }
  const python = environment.SHARDWISE_PYTHON ?? "python3";
  const folders = pythonFolders(python, environment);
  if (folders === undefined) {
    throw new XlaPluginError(`no XLA plug-in found: "${python}" does not run here; ${install}`);
  }
  const found = folders.flatMap(pluginsIn);
  const [first] = found;
  if (first !== undefined) return first;
  throw new XlaPluginError(
    `no XLA plug-in found for "${python}": none of its folders ${folders.join(", ")} has jax_plugins/xla_cuda… or libtpu; ${install}`,
  );
}

/** The folders of the Pythons that were asked, by their names. */
const known = new Map<string, readonly string[]>();

/** The folders in which a Python looks for packages; it is asked once. */
function pythonFolders(python: string, env: NodeJS.ProcessEnv): readonly string[] | undefined {
  const folders = known.get(python) ?? askPython(python, env);
  if (folders !== undefined) known.set(python, folders);
  return folders;
}

function askPython(python: string, env: NodeJS.ProcessEnv): readonly string[] | undefined {
  const script = "import json, sys; print(json.dumps(sys.path))";
  const { status, stdout } = spawnSync(python, ["-c", script], { encoding: "utf8", env, timeout: 30_000 });
  if (status !== 0) return undefined;
  const folders: unknown = JSON.parse(stdout);
  return Array.isArray(folders)
    ? folders.filter((folder) => typeof folder === "string" && folder !== "")
    : [];
}

/** The plug-ins in a package folder, newest CUDA first. */
function pluginsIn(folder: string): string[] {
  const plugins = join(folder, "jax_plugins");
  const cuda = existsSync(plugins) ? readdirSync(plugins).filter((name) => name.startsWith("xla_cuda")) : [];
  const files = cuda
    .sort()
    .reverse()
    .map((name) => join(plugins, name, "xla_cuda_plugin.so"));
  return [...files, join(folder, "libtpu", "libtpu.so")].filter((file) => existsSync(file));
}
