/** Rows of a batch and layers of the model, which a mesh divides among its devices. */
export const [batch, numLayers] = [16, 4];

/** The step after which the model first writes something. */
export const firstSample = 10;
