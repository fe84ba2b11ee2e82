/** Stands in for advice to the operating system about pages. */
export function discardPages(): void {}
export function wantHugePages(): void {}
