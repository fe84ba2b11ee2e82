import { ValueError } from "../../ir/errors.js";
import { isLocalHost } from "../../platform/localHost.js";
import { detectLaunch, type EnvironmentVariables, wholeNumber } from "../launch.js";

/** The processes that run programs together, each with devices of its own. */
export interface XlaProcesses {
  /** The address at which process 0 listens, such as `node1:8476`. */
  readonly coordinator: string;
  /** The index of this process. */
  readonly index: number;
  /** The number of processes. */
  readonly count: number;
  /**
   * What all processes were told and nobody else: who does not know it cannot join. It may be empty if the coordinator
   * is an address of this machine alone.
   */
  readonly secret: string;
  /** How long to wait for the other processes, in milliseconds. */
  readonly timeoutMs: number;
  /** Which devices of its machine this process uses; all visible ones by default. */
  readonly localDevices?: readonly number[];
}

/** How long processes wait for each other by default, in milliseconds: the same as in JAX. */
const TIMEOUT_MS = 300_000;

/** Minimum length of a secret. */
const SHORTEST_SECRET = 16;

/**
 * The processes that this one runs with, according to its options and environment; undefined if it runs alone.
 *
 * `SHARDWISE_PROCESS_INDEX` and `SHARDWISE_PROCESS_COUNT` number them, else the launcher that started them (`srun`,
 * `mpirun`); `SHARDWISE_COORDINATOR` is where process 0 listens, and `SHARDWISE_SECRET` keeps others out.
 */
export function findProcesses(
  options: Partial<XlaProcesses> | false | undefined,
  environment: EnvironmentVariables = process.env,
): XlaProcesses | undefined {
  if (options === false) return undefined;
  const launch = detectLaunch(environment);
  const count = options?.count ?? numberIn(environment, "SHARDWISE_PROCESS_COUNT") ?? launch?.size ?? 1;
  if (count === 1) return undefined;
  const index = options?.index ?? numberIn(environment, "SHARDWISE_PROCESS_INDEX") ?? launch?.rank;
  if (index === undefined) {
    throw new ValueError(
      `[createXlaEngine] this is one of ${count} processes, but its index is unknown: set SHARDWISE_PROCESS_INDEX to 0 … ${count - 1}`,
    );
  }
  checkIndex(index, count);
  const coordinator = options?.coordinator ?? environment.SHARDWISE_COORDINATOR;
  if (coordinator === undefined || coordinator === "") {
    throw new ValueError(
      `[createXlaEngine] this is process ${index} of ${count}, but the address of process 0 is unknown: set SHARDWISE_COORDINATOR=host:port in all of them, or SHARDWISE_PROCESS_COUNT=1 to let each run alone`,
    );
  }
  const secret = options?.secret ?? environment.SHARDWISE_SECRET ?? "";
  checkSecret(secret, coordinator);
  const own = options?.localDevices ?? (launch && localDevicesOf(launch.localRank, environment));
  const timeoutMs = options?.timeoutMs ?? TIMEOUT_MS;
  return {
    coordinator,
    index,
    count,
    secret,
    timeoutMs,
    ...(own === undefined ? {} : { localDevices: own }),
  };
}

/** Host and port of an address such as `node1:8476` or `[::1]:8476`. */
export function addressOf(coordinator: string): { readonly host: string; readonly port: number } {
  const parts = /^(?:\[([^\]]+)\]|([^:]+)):(\d+)$/.exec(coordinator);
  const port = Number(parts?.[3]);
  const host = parts?.[1] ?? parts?.[2];
  if (host !== undefined && port > 0 && port < 2 ** 16) return { host, port };
  throw new ValueError(
    `[createXlaEngine] "${coordinator}" is not an address of process 0: write host:port, such as node1:8476`,
  );
}

function checkSecret(secret: string, coordinator: string): void {
  if (secret.length >= SHORTEST_SECRET) return;
  if (secret === "" && isLocalHost(addressOf(coordinator).host)) return;
  const problem = secret === "" ? "there is no secret" : `the secret has ${secret.length} characters`;
  throw new ValueError(
    `[createXlaEngine] process 0 listens at ${coordinator}, where others can reach it, and ${problem}: set SHARDWISE_SECRET to at least ${SHORTEST_SECRET} random characters, the same in all processes, as in export SHARDWISE_SECRET=$(openssl rand -hex 16)`,
  );
}

function checkIndex(index: number, count: number): void {
  if (!(Number.isInteger(count) && count > 0)) {
    throw new ValueError(
      `[createXlaEngine] ${count} is not a number of processes: use an integer of at least 1`,
    );
  }
  if (!(Number.isInteger(index) && index >= 0 && index < count)) {
    throw new ValueError(
      `[createXlaEngine] no process ${index}: the ${count} processes are 0 … ${count - 1}`,
    );
  }
}

/** Processes on one machine take one device each, unless the devices have been assigned already. */
function localDevicesOf(localRank: number, environment: EnvironmentVariables): readonly number[] | undefined {
  const visible = environment.CUDA_VISIBLE_DEVICES?.split(",").filter((device) => device.trim() !== "");
  if (visible !== undefined && visible.length <= localRank) return undefined;
  return visible?.length === 1 ? undefined : [localRank];
}

function numberIn(environment: EnvironmentVariables, name: string): number | undefined {
  const text = environment[name];
  if (text === undefined || text === "") return undefined;
  const number = wholeNumber(text);
  if (number !== undefined) return number;
  throw new ValueError(`${name} is "${text}": use an integer`);
}
