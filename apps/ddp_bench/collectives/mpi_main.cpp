// SPDX-License-Identifier: BSD-3-Clause
// ddp_bench_openmpi, ddp_bench_mpich: a rank that mpirun started runs the rounds of `ddp_bench collectives` over MPI.
// They are separate programs, so that ddp_bench needs no MPI.
#define OMPI_SKIP_MPICXX  // only the C interface is used
#include <mpi.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <string>

#include "apps/ddp_bench/collectives/command.hpp"

namespace {

using ddp::bench::Collective;

#ifdef OPEN_MPI
constexpr char kName[] = "openmpi";
#else
constexpr char kName[] = "mpich";
#endif

class MpiContender : public ddp::bench::Contender {
 public:
  MpiContender() {
    MPI_Comm_rank(MPI_COMM_WORLD, &rank_);
    MPI_Comm_size(MPI_COMM_WORLD, &size_);
  }
  const char* name() const override { return kName; }
  int rank() const override { return rank_; }
  int size() const override { return size_; }
  // An error ends the job: MPI_ERRORS_ARE_FATAL is MPI's default.
  void run(Collective collective, const float* input, float* output, std::size_t elements) override {
    const int count = static_cast<int>(elements);
    const int part = count / size_;
    switch (collective) {
      case Collective::AllReduce:
        MPI_Allreduce(MPI_IN_PLACE, output, count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
        break;
      case Collective::Broadcast:
        MPI_Bcast(output, count, MPI_FLOAT, 0, MPI_COMM_WORLD);
        break;
      case Collective::Reduce:
        MPI_Reduce(rank_ == 0 ? MPI_IN_PLACE : output, output, count, MPI_FLOAT, MPI_SUM, 0, MPI_COMM_WORLD);
        break;
      case Collective::AllGather:
        MPI_Allgather(input, part, MPI_FLOAT, output, part, MPI_FLOAT, MPI_COMM_WORLD);
        break;
      case Collective::ReduceScatter:
        MPI_Reduce_scatter_block(input, output, part, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
        break;
      case Collective::AllToAll:
        MPI_Alltoall(input, part, MPI_FLOAT, output, part, MPI_FLOAT, MPI_COMM_WORLD);
        break;
      case Collective::Gather:
        MPI_Gather(input, part, MPI_FLOAT, output, part, MPI_FLOAT, 0, MPI_COMM_WORLD);
        break;
      case Collective::Scatter:
        MPI_Scatter(input, part, MPI_FLOAT, output, part, MPI_FLOAT, 0, MPI_COMM_WORLD);
        break;
      case Collective::Barrier:
        MPI_Barrier(MPI_COMM_WORLD);
        break;
    }
  }

 private:
  int rank_ = 0;
  int size_ = 1;
};

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("The rounds of ddp_bench collectives over MPI; a rank of mpirun's.", std::string("ddp_bench_") + kName);
  ddp::bench::CollectivePlan plan;
  ddp::bench::declare_options(app, plan);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? EXIT_SUCCESS : 2;
  }
  MPI_Init(&argc, &argv);
  MpiContender mpi;
  try {
    ddp::bench::measure_collectives({&mpi}, plan, ddp::bench::print_figures);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "ddp_bench_%s: %s\n", kName, error.what());
    MPI_Abort(MPI_COMM_WORLD, EXIT_FAILURE);
  }
  MPI_Finalize();
  return EXIT_SUCCESS;
}
