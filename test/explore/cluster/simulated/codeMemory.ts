/** Stands in for memory that holds machine code: there is none. */
export class CodeMemory {
  readonly isMissing = true;

  static open(): CodeMemory | string {
    return "the simulated cluster has no machine code";
  }
}
