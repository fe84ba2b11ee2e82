/** Meshes of a few devices. */

/** The axes that a training run may have. */
export const axes = ["data", "fsdp", "expert", "pipe", "context", "model"] as const;

/** How many devices a mesh has along each axis. */
export type Sizes = Readonly<Record<(typeof axes)[number], number>>;

/** All ways to split a number of devices, a power of two up to 8, over the axes. */
export function meshesOf(total: number): readonly Sizes[] {
  const along = (left: number, names: readonly string[]): Readonly<Record<string, number>>[] => {
    const [name, ...rest] = names;
    if (name === undefined) return left === 1 ? [{}] : [];
    const sizes = [1, 2, 4, 8].filter((size) => left % size === 0);
    return sizes.flatMap((size) => along(left / size, rest).map((others) => ({ [name]: size, ...others })));
  };
  return along(total, axes) as unknown as Sizes[];
}

/** A mesh as the axes that split, such as `data=2 model=4`. */
export function meshName(sizes: Sizes): string {
  return axes.flatMap((name) => (sizes[name] > 1 ? [`${name}=${sizes[name]}`] : [])).join(" ");
}
