/** What surrounds the processes that tests start. */

// `_` names the command that a shell started, `nohup` perhaps.
const { SHARDWISE_ENGINE: engine, SHARDWISE_VERIFY: verified, _: started, ...inherited } = process.env;

/** The environment without what tests choose for themselves: their engine, and checks of every pass. */
export const withoutChoices: NodeJS.ProcessEnv = inherited;

/** The environment of users who compute on worker threads. */
export const userEnvironment: NodeJS.ProcessEnv = { ...inherited, SHARDWISE_ENGINE: "threads" };
