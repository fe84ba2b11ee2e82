/** JAX's `scipy.integrate`. */
export { type TrapezoidOptions, trapezoid } from "../../numpy/composed/neighbours.js";
