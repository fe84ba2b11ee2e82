/** Stands in for the bundled code of workers; the scenario loads the worker's module itself. */
export const workerCode = () => "worker";
