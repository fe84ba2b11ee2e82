/** Rows of a batch and layers of the model, which a mesh divides among its devices. */
export const [batch, numLayers] = [16, 4];
