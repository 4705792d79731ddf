// SPDX-License-Identifier: BSD-3-Clause
// bench_worker_openmpi, bench_worker_mpich: `bench_worker FILE first` over MPI.
#include <mpi.h>

#include "apps/ddp_bench/worker/stamps.h"

int main(int argc, char** argv) {
  if (argc != 2) {
    fprintf(stderr, "usage: mpirun -n N bench_worker_mpi FILE\n");
    return 2;
  }
  stamp(argv[1], "started");
  MPI_Init(&argc, &argv);
  stamp(argv[1], "joined");
  int rank = 0;
  int size = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  double sum = rank + 1;
  MPI_Allreduce(MPI_IN_PLACE, &sum, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
  if (sum != size * (size + 1) / 2.0) {
    fprintf(stderr, "rank %d of %d: the sum is %g\n", rank, size, sum);
    return 1;
  }
  stamp(argv[1], "reduced");
  MPI_Finalize();
  return 0;
}
