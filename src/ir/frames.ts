/** Finds which frames of a stack trace belong to the library, however it was loaded. */

/** A library that is loaded from its build, whose source maps lead to the sources packaged with it. */
const built = /\/dist\/$/;

/**
 * The folders of a library, given a module one folder below them: where it was loaded from, and where source maps place
 * it.
 */
export function foldersOf(module: string): readonly string[] {
  const folder = new URL("../", module).href.replace(/^file:\/\//, "");
  return built.test(folder) ? [folder, folder.replace(built, "/src/")] : [folder];
}

/** Source maps of bundles lead to the installed package; the module's own place is then that of the bundle, if any. */
const bundled = ["/node_modules/shardwise/dist/", "/node_modules/shardwise/src/"];
const isBundled = !/\/ir\/frames\.[jt]s$/.test(import.meta.url);

/** The file of the bundle that the library is in, where nothing tells its frames from those of other code; or undefined. */
export const bundleFile: string | undefined = (isBundled && import.meta.url) || undefined;

const libraryFolders = isBundled ? bundled : [...foldersOf(import.meta.url), ...bundled];

/** The path of a file below the library's folder, or `undefined` for other code; tests do not belong to the library. */
export function pathInLibrary(
  frame: string,
  folders: readonly string[] = libraryFolders,
): string | undefined {
  if (frame.includes(".test.")) return undefined;
  for (const folder of folders) {
    const start = frame.indexOf(folder);
    if (start >= 0) return frame.slice(start + folder.length);
  }
  return undefined;
}

/** Maximum number of frames to capture; the runtime's default is ten. */
export const deepestFrame = 50;

/**
 * A stack trace in which the user's code comes first: frames of the library and of the runtime are counted, not shown.
 * A trace without user code is left unchanged.
 */
export function foldStack(stack: string, folders: readonly string[] = libraryFolders): string {
  const lines = stack.split("\n");
  const first = lines.findIndex((line) => /^\s+at /.test(line));
  if (first < 0) return stack;
  const frames = lines.slice(first);
  const users = frames.filter((line) => isFrame(line) && pathInLibrary(line, folders) === undefined);
  if (users.length === 0) return stack;
  const folded = frames.filter((line) => pathInLibrary(line, folders) !== undefined).length;
  const note = folded > 0 ? [`    … ${folded} frames of shardwise, shown with SHARDWISE_STACKS=all`] : [];
  return [...lines.slice(0, first), ...users, ...note].join("\n");
}

/** Parts of the library whose functions call one another, and which users call. */
const functions = /^(numpy|lax|nn|random|optim|scipy)\//;

/** Exports that no function can be called like, so that no frame shows them. */
const reserved = /^(delete|switch|var)$/;

/** Members of transformations and modules, and what makes modules: they say less than the message, which names these. */
const members = /^(apply|create|init|update)$/;

/** A method of an object, such as `update` of an optimiser, whose name says less than the message. */
const isObject = /^ +at Object\./;

/**
 * A message of the library that begins with the name of the function it is about, as in `[mean] …`, with the name of the
 * function that the user called before it, as in `[std: mean] …`, where the stack shows that it is another one. A
 * message without a name gets that of the called function.
 */
export function nameCalled(
  message: string,
  stack: string,
  folders: readonly string[] = libraryFolders,
): string {
  const inner = /^\[(?:\w+\.)*(\w+)\] /.exec(message)?.[1];
  if (inner !== undefined && reserved.test(inner)) return message;
  const frames = stack.split("\n").filter(isFrame);
  const user = frames.findIndex((line) => pathInLibrary(line, folders) === undefined);
  const frame = frames[user - 1] ?? "";
  const path = pathInLibrary(frame, folders) ?? "";
  if (!functions.test(path) || (isObject.test(frame) && !path.startsWith("scipy/"))) return message;
  // Functions of namespaces and distributions, and methods of tensors.
  const called = /^ +at (?:(?:Module|Object|Tensor)\.)?([a-z]\w*)(?: \[as \w+\])? \(/.exec(frame)?.[1];
  if (called === undefined || called === inner || members.test(called)) return message;
  return inner === undefined ? `[${called}] ${message}` : message.replace("[", `[${called}: `);
}

const isFrame = (line: string) => /:\d+:\d+\)?$/.test(line.trim()) && !line.includes("node:");
