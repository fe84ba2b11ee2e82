import { instanceOf, type Kind } from "../ir/arguments.js";
import type { AbortSignalLike } from "../platform/hostTypes.js";

/** The kind of options that stop something; here and not with the other kinds because only the hosts of engines have signals. */
export const signalKind: Kind<AbortSignalLike> = instanceOf(AbortSignal, "an AbortSignal");
