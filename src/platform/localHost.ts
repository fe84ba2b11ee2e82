/** Whether an address can only be reached from this machine. */
export function isLocalHost(host: string): boolean {
  return host === "localhost" || host === "::1" || /^127(\.\d{1,3}){3}$/.test(host);
}
