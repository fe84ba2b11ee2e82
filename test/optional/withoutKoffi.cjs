// Loaded before a program, makes the machine one that koffi has no binary for.
const Module = require("node:module");
const load = Module._load;
Module._load = function (name, ...rest) {
  if (name === "koffi") throw new Error("koffi has no binary for this system");
  return load.call(this, name, ...rest);
};
