/** Stands in for the timers of the system that give promises. */
const later = setTimeout;

export { sleep as setTimeout };

function sleep(milliseconds: number): Promise<void> {
  return new Promise((resolve) => {
    later(resolve, milliseconds);
  });
}
