/** The code of the threads is not run. */
export const compileWorkerCode = () => "a compiler";
