import { instanceOf } from "../ir/arguments.js";

/** The kind of options that stop something; here and not with the other kinds because only the hosts of engines declare `AbortSignal`. */
export const signalKind = instanceOf(AbortSignal, "an AbortSignal");
