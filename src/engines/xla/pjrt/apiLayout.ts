import type { DType } from "../../../ir/dtype.js";

/**
 * The PJRT C API as data. Everything in it consists of 8-byte words: the function table has one word for each function
 * after five words of sizes and versions, and so do the arguments of every function. Additions are only ever made at
 * the end, and a plug-in accepts structs that are larger than its own.
 */

/** The functions of the table in their order, the first at word {@link FIRST_FUNCTION}. */
export const functionNames = [
  "Error_Destroy",
  "Error_Message",
  "Error_GetCode",
  "Plugin_Initialize",
  "Plugin_Attributes",
  "Event_Destroy",
  "Event_IsReady",
  "Event_Error",
  "Event_Await",
  "Event_OnReady",
  "Client_Create",
  "Client_Destroy",
  "Client_PlatformName",
  "Client_ProcessIndex",
  "Client_PlatformVersion",
  "Client_Devices",
  "Client_AddressableDevices",
  "Client_LookupDevice",
  "Client_LookupAddressableDevice",
  "Client_AddressableMemories",
  "Client_Compile",
  "Client_DefaultDeviceAssignment",
  "Client_BufferFromHostBuffer",
  "DeviceDescription_Id",
  "DeviceDescription_ProcessIndex",
  "DeviceDescription_Attributes",
  "DeviceDescription_Kind",
  "DeviceDescription_DebugString",
  "DeviceDescription_ToString",
  "Device_GetDescription",
  "Device_IsAddressable",
  "Device_LocalHardwareId",
  "Device_AddressableMemories",
  "Device_DefaultMemory",
  "Device_MemoryStats",
  "Memory_Id",
  "Memory_Kind",
  "Memory_DebugString",
  "Memory_ToString",
  "Memory_AddressableByDevices",
  "Executable_Destroy",
  "Executable_Name",
  "Executable_NumReplicas",
  "Executable_NumPartitions",
  "Executable_NumOutputs",
  "Executable_SizeOfGeneratedCodeInBytes",
  "Executable_GetCostAnalysis",
  "Executable_OutputMemoryKinds",
  "Executable_OptimizedProgram",
  "Executable_Serialize",
  "LoadedExecutable_Destroy",
  "LoadedExecutable_GetExecutable",
  "LoadedExecutable_AddressableDevices",
  "LoadedExecutable_Delete",
  "LoadedExecutable_IsDeleted",
  "LoadedExecutable_Execute",
  "Executable_DeserializeAndLoad",
  "LoadedExecutable_Fingerprint",
  "Buffer_Destroy",
  "Buffer_ElementType",
  "Buffer_Dimensions",
  "Buffer_UnpaddedDimensions",
  "Buffer_DynamicDimensionIndices",
  "Buffer_GetMemoryLayout",
  "Buffer_OnDeviceSizeInBytes",
  "Buffer_Device",
  "Buffer_Memory",
  "Buffer_Delete",
  "Buffer_IsDeleted",
  "Buffer_CopyToDevice",
  "Buffer_ToHostBuffer",
] as const;

/** The name of a function in the table. */
export type FunctionName = (typeof functionNames)[number];

/** The word of the table that holds the first function. */
export const FIRST_FUNCTION = 5;

/**
 * The arguments of the functions that are called: the size of the struct in bytes, and the word of every field. Word 0
 * is the size, word 1 points to extensions. A field shorter than a word occupies its low bytes.
 */
export const structs = {
  Error_Destroy: { bytes: 24, error: 2 },
  Error_Message: { bytes: 40, error: 2, message: 3, size: 4 },
  Error_GetCode: { bytes: 28, error: 2, code: 3 },
  Plugin_Initialize: { bytes: 16 },
  Event_Destroy: { bytes: 24, event: 2 },
  Event_IsReady: { bytes: 25, event: 2, isReady: 3 },
  Event_Error: { bytes: 24, event: 2 },
  Event_OnReady: { bytes: 40, event: 2, callback: 3, user: 4 },
  Client_Create: { bytes: 88, options: 2, numOptions: 3, get: 4, put: 6, client: 8, tryGet: 9 },
  Client_Destroy: { bytes: 24, client: 2 },
  Client_PlatformName: { bytes: 40, handle: 2, text: 3, size: 4 },
  Client_PlatformVersion: { bytes: 40, handle: 2, text: 3, size: 4 },
  Client_ProcessIndex: { bytes: 28, client: 2, index: 3 },
  Client_Devices: { bytes: 40, client: 2, devices: 3, count: 4 },
  Client_AddressableDevices: { bytes: 40, client: 2, devices: 3, count: 4 },
  Client_Compile: { bytes: 56, client: 2, program: 3, options: 4, optionsSize: 5, executable: 6 },
  Client_BufferFromHostBuffer: {
    bytes: 120,
    client: 2,
    data: 3,
    type: 4,
    dims: 5,
    numDims: 6,
    semantics: 9,
    device: 10,
    done: 13,
    buffer: 14,
  },
  DeviceDescription_Id: { bytes: 28, description: 2, id: 3 },
  DeviceDescription_Attributes: { bytes: 40, description: 2, count: 3, attributes: 4 },
  DeviceDescription_ProcessIndex: { bytes: 28, description: 2, index: 3 },
  DeviceDescription_Kind: { bytes: 40, handle: 2, text: 3, size: 4 },
  Device_GetDescription: { bytes: 32, device: 2, description: 3 },
  Device_MemoryStats: { bytes: 209, device: 2, used: 3, peak: 4, limit: 10 },
  Executable_Destroy: { bytes: 24, executable: 2 },
  Executable_NumOutputs: { bytes: 32, executable: 2, count: 3 },
  Executable_Serialize: { bytes: 56, executable: 2, data: 3, size: 4, owner: 5, deleter: 6 },
  Executable_DeserializeAndLoad: { bytes: 72, client: 2, data: 3, size: 4, executable: 5 },
  LoadedExecutable_Destroy: { bytes: 24, executable: 2 },
  LoadedExecutable_GetExecutable: { bytes: 32, loaded: 2, executable: 3 },
  LoadedExecutable_Execute: {
    bytes: 80,
    executable: 2,
    options: 3,
    argumentLists: 4,
    numDevices: 5,
    numArguments: 6,
    outputLists: 7,
    events: 8,
  },
  Buffer_Destroy: { bytes: 24, buffer: 2 },
  Buffer_CopyToDevice: { bytes: 40, buffer: 2, device: 3, copy: 4 },
  Buffer_ToHostBuffer: { bytes: 56, buffer: 2, target: 4, size: 5, event: 6 },
} as const satisfies { readonly [F in FunctionName]?: Readonly<Record<string, number>> };

/** A function whose argument struct is known. */
export type CalledFunction = keyof typeof structs;

/** Structs that arguments point to. */
export const otherStructs = {
  Program: { bytes: 48, code: 2, codeSize: 3, format: 4, formatSize: 5 },
  ExecuteOptions: { bytes: 144, launchId: 6, kept: 7, numKept: 8 },
  NamedValue: { bytes: 56, name: 2, nameSize: 3, type: 4, value: 5, count: 6 },
} as const;

/** The arguments with which a plug-in calls the store callbacks it was given; word 0 is meaningless there. */
export const storeCallbacks = {
  get: {
    bytes: 80,
    key: 2,
    keySize: 3,
    timeout: 4,
    makeError: 5,
    value: 7,
    valueSize: 8,
    deleter: 9,
  },
  put: { bytes: 64, key: 2, keySize: 3, value: 4, valueSize: 5, makeError: 6 },
  tryGet: { bytes: 72, key: 2, keySize: 3, makeError: 4, value: 6, valueSize: 7, deleter: 8 },
} as const;

/** The numeric kinds of a named value. */
export const namedValueTypes = { string: 0, integer: 1, integers: 2, float: 3, boolean: 4 } as const;

/** When an upload reads host memory: only during the call, or until an event. */
export const semantics = { duringCall: 0, untilDone: 1 } as const;

/** The numeric data types. */
export const elementTypes: { readonly [D in DType]: number } = {
  bool: 1,
  int8: 2,
  int16: 3,
  int32: 4,
  uint8: 6,
  uint16: 7,
  uint32: 8,
  float16: 10,
  float32: 11,
  float64: 12,
  bfloat16: 13,
  complex64: 14,
  complex128: 15,
};
