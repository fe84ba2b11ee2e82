export { cond, switchCase } from "./cond.js";
export { customGradient, customVjp } from "./customVjp.js";
export { grad, jvp, valueAndGrad, vjp, vjpProgram } from "./grad.js";
export { hessian, type JacobianOptions, jacfwd, jacrev, linearize } from "./jacobian.js";
export { evalShape, makeProgram } from "./makeProgram.js";
export { checkpointName, checkpointPolicies, remat } from "./remat.js";
export { associativeScan, map, scan } from "./scan.js";
export { simplify } from "./simplify.js";
export { foriLoop, whileLoop } from "./whileLoop.js";
