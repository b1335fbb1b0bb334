// Open MPI; which of its transports is the command line's choice (task.py).
#include <mpi.h>

#include "benchmarks/support/exchange.h"

namespace {

class OpenMpi {
 public:
  void AllReduce(float* data, size_t count) {
    MPI_Allreduce(MPI_IN_PLACE, data, static_cast<int>(count), MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
  }
  double Max(double value) {
    MPI_Allreduce(MPI_IN_PLACE, &value, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    return value;
  }
  void Exchange(std::byte* data, size_t bytes) {
    int rank = 0;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    const int count = static_cast<int>(bytes);
    if (rank == 0) {
      MPI_Send(data, count, MPI_BYTE, 1, 1, MPI_COMM_WORLD);
      MPI_Recv(data, count, MPI_BYTE, 1, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    } else if (rank == 1) {
      MPI_Recv(data, count, MPI_BYTE, 0, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
      MPI_Send(data, count, MPI_BYTE, 0, 1, MPI_COMM_WORLD);
    }
  }
  float* Allocate(size_t bytes) {
    memory_.resize((bytes + sizeof(float) - 1) / sizeof(float));
    return memory_.data();
  }

 private:
  std::vector<float> memory_;
};

}  // namespace

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  exchange::Options options = exchange::Parse(argc, argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &options.rank);
  MPI_Comm_size(MPI_COMM_WORLD, &options.ranks);
  {
    OpenMpi library;
    exchange::RunAll(library, options);
  }
  MPI_Finalize();
  return 0;
}
