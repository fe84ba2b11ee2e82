/** Why a request is not answered, with the status that its client gets. */
export class RequestError extends Error {
  constructor(
    readonly status: number,
    message: string,
    readonly details: {
      /** The field of the body that is wrong. */
      readonly param?: string;
      /** A stable word for programs, as OpenAI's service has it. */
      readonly code?: string;
      /** Seconds after which the same request may succeed. */
      readonly retryAfter?: number;
    } = {},
  ) {
    super(message);
  }
}

const types: Readonly<Record<number, string>> = {
  401: "authentication_error",
  403: "permission_error",
  429: "rate_limit_error",
  500: "server_error",
  503: "server_error",
  504: "timeout_error",
};

/** An error in OpenAI's form. */
export function errorJson({ status, message, details }: RequestError): object {
  const { param = null, code = null } = details;
  return { error: { message, type: types[status] ?? "invalid_request_error", param, code } };
}
