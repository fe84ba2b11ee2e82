/** Errors on their way from one thread to another. */

/** The last that a thread says when something threw. */
export interface Failure {
  readonly name: string;
  readonly message: string;
  readonly stack: string | undefined;
}

/** What can be sent of an error. */
export function failureOf(error: unknown): Failure {
  if (!(error instanceof Error)) return { name: "Error", message: String(error), stack: undefined };
  const { name, message, stack } = error;
  return { name, message, stack };
}

/** The error that was sent. */
export function errorOf({ name, message, stack }: Failure): Error {
  return Object.assign(new Error(message), { name, stack });
}

/** An error in one line. */
export function describeError(cause: unknown): string {
  return cause instanceof Error ? `${cause.name}: ${cause.message}` : String(cause);
}
