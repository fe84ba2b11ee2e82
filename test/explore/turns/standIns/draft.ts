/** There is no smaller model. */
export const checkDraft = (): void => {};

export class Draft {}
