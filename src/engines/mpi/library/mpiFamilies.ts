import type { Koffi } from "../../system/koffi.js";

/** A library that koffi has loaded. */
export type Library = import("koffi").LibraryHandle;

/** What differs between the two families of MPI libraries: what handles are, and where things lie in a status. */
export interface MpiFamily {
  readonly name: "Open MPI" | "MPICH";
  /** The native type of a handle, and how many bytes it takes. */
  readonly handle: "uintptr_t" | "uint32_t";
  readonly handleBytes: 4 | 8;
  readonly statusBytes: number;
  /** Which 32-bit words of a status hold the error and the (lower half of the) number of bytes. */
  readonly statusError: number;
  readonly statusCount: number;
  /** The key of the attribute that holds the largest tag. */
  readonly tagBound: number;
  readonly constants: (library: Library, koffi: Koffi) => Constants;
}

/** Handles and addresses that the library defines. */
export interface Constants {
  readonly world: number;
  readonly byte: number;
  readonly errorsReturn: number;
  /** What MPI can add up itself, by data type. */
  readonly types: { readonly [K in SummedType]: number };
  readonly sum: number;
  /** Stands for a source that lies where the result goes. */
  readonly inPlace: number;
}

/** The data types of which MPI forms sums as the engine does, but for their order. */
export const summedTypes = ["float32", "float64", "int32", "uint32"] as const;

/** A data type of which MPI forms sums. */
export type SummedType = (typeof summedTypes)[number];

/** Open MPI, whose handles are addresses. */
export const openMpi: MpiFamily = {
  name: "Open MPI",
  handle: "uintptr_t",
  handleBytes: 8,
  statusBytes: 24,
  statusError: 2,
  statusCount: 4,
  tagBound: 0,
  constants: (library, koffi) => {
    // Handles are the addresses of objects that the library exports.
    const address = (symbol: string) => Number(koffi.address(library.symbol(symbol)));
    return {
      world: address("ompi_mpi_comm_world"),
      byte: address("ompi_mpi_byte"),
      errorsReturn: address("ompi_mpi_errors_return"),
      types: {
        float32: address("ompi_mpi_float"),
        float64: address("ompi_mpi_double"),
        int32: address("ompi_mpi_int"),
        uint32: address("ompi_mpi_unsigned"),
      },
      sum: address("ompi_mpi_op_sum"),
      inPlace: 1,
    };
  },
};

/** MPICH, whose handles are numbers; Intel MPI and MVAPICH have MPICH's binary interface. */
export const mpich: MpiFamily = {
  name: "MPICH",
  handle: "uint32_t",
  handleBytes: 4,
  statusBytes: 20,
  statusError: 4,
  statusCount: 0,
  tagBound: 0x64400001,
  constants: () => ({
    world: 0x44000000,
    byte: 0x4c00010d,
    errorsReturn: 0x54000001,
    types: { float32: 0x4c00040a, float64: 0x4c00080b, int32: 0x4c000405, uint32: 0x4c000406 },
    sum: 0x58000003,
    inPlace: -1,
  }),
};

/** Where libraries of each family are found; plain names leave the search to the loader. */
export const paths: { readonly [K in MpiFamily["name"]]: readonly string[] } = {
  "Open MPI": [
    "libmpi.so.40",
    "/usr/lib64/openmpi/lib/libmpi.so.40",
    "/opt/openmpi/lib/libmpi.so.40",
    "libmpi.40.dylib",
    "/opt/homebrew/lib/libmpi.40.dylib",
  ],
  MPICH: [
    "libmpich.so.12",
    "libmpi.so.12",
    "/usr/lib64/mpich/lib/libmpi.so.12",
    "/opt/intel/oneapi/mpi/latest/lib/libmpi.so.12",
    "libmpi.12.dylib",
    "/opt/homebrew/lib/libmpi.12.dylib",
  ],
};
