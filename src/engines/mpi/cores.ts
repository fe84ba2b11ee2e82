/** The numbers in a list as the system writes it: `0-2,5` is 0, 1, 2 and 5. */
export function parseCpuList(text: string): number[] {
  return text
    .trim()
    .split(",")
    .filter((part) => part !== "")
    .flatMap((part) => {
      const [first = 0, last = first] = part.split("-").map(Number);
      return Array.from({ length: Math.max(0, last - first + 1) }, (_, i) => first + i);
    });
}

/**
 * How many cores each process has when those that may use the same core share it, rounded down but at least one.
 *
 * @param cpus for every process of one host the cores that it may use
 */
export function shareCores(cpus: readonly (readonly number[])[]): number[] {
  const users = new Map<number, number>();
  for (const cpu of cpus.flat()) users.set(cpu, (users.get(cpu) ?? 0) + 1);
  return cpus.map((list) => {
    const share = list.reduce((sum, cpu) => sum + 1 / (users.get(cpu) ?? 1), 0);
    return Math.max(1, Math.floor(share + 1e-9));
  });
}
