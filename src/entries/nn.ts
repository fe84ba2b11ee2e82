/** `shardwise/nn`, which works alone: it loads what runs programs as well. */
import "../train/install.js";

export * from "../nn/index.js";
