// Gloo over TCP on the loopback interface; the ring algorithm for all-reduce. The parent process
// only starts the ranks.
#include <memory>

#include <gloo/allreduce.h>
#include <gloo/math.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/file_store.h>
#include <gloo/transport/tcp/device.h>
#include <sys/wait.h>
#include <unistd.h>

#include "benchmarks/support/exchange.h"

namespace {

class Gloo {
 public:
  explicit Gloo(std::shared_ptr<gloo::rendezvous::Context> context)
      : context_(std::move(context)) {}

  void AllReduce(float* data, size_t count) { Reduce(data, count, &gloo::sum<float>); }
  double Max(double value) {
    Reduce(&value, 1, &gloo::max<double>);
    return value;
  }
  void Exchange(std::byte* data, size_t bytes) {
    if (buffer_ == nullptr || bytes != buffer_bytes_) {
      buffer_ = context_->createUnboundBuffer(data, bytes);
      buffer_bytes_ = bytes;
    }
    if (context_->rank == 0) {
      buffer_->send(1, 7);
      buffer_->waitSend();
      buffer_->recv(1, 7);
      buffer_->waitRecv();
    } else {
      buffer_->recv(0, 7);
      buffer_->waitRecv();
      buffer_->send(0, 7);
      buffer_->waitSend();
    }
  }
  float* Allocate(size_t bytes) {
    memory_.resize((bytes + sizeof(float) - 1) / sizeof(float));
    return memory_.data();
  }

 private:
  template <typename T>
  void Reduce(T* data, size_t count, void (*fold)(void*, const void*, const void*, size_t)) {
    gloo::AllreduceOptions options(context_);
    options.setOutput(data, count);
    options.setReduceFunction(fold);
    options.setAlgorithm(gloo::AllreduceOptions::Algorithm::RING);
    options.setTag(tag_++);
    gloo::allreduce(options);
  }

  std::shared_ptr<gloo::rendezvous::Context> context_;
  std::unique_ptr<gloo::transport::UnboundBuffer> buffer_;
  size_t buffer_bytes_ = 0;
  uint32_t tag_ = 0;
  std::vector<float> memory_;
};

void RunRank(const exchange::Options& options) {
  gloo::transport::tcp::attr attributes;
  attributes.iface = "lo";
  auto device = gloo::transport::tcp::CreateDevice(attributes);
  auto context = std::make_shared<gloo::rendezvous::Context>(options.rank, options.ranks);
  gloo::rendezvous::FileStore store(options.folder);
  context->connectFullMesh(store, device);
  Gloo library(context);
  exchange::RunAll(library, options);
}

}  // namespace

int main(int argc, char** argv) {
  exchange::Options options = exchange::Parse(argc, argv);
  for (options.rank = 0; options.rank < options.ranks; ++options.rank) {
    if (::fork() == 0) {
      RunRank(options);
      std::fflush(stdout);
      ::_exit(0);
    }
  }
  int failed = 0;
  for (int rank = 0; rank < options.ranks; ++rank) {
    int status = 0;
    ::wait(&status);
    failed |= status != 0 ? 1 : 0;
  }
  return failed;
}
