#include "benchmarks/collectives/overlap.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <thread>

#include <pthread.h>
#include <sched.h>

#include "base/bytes.h"
#include "base/clock.h"

namespace heddle::comm {

namespace {

constexpr size_t kActivationBytes = 8 << 10;
constexpr int kIdleRounds = 200;
constexpr Duration kControl = std::chrono::seconds(1);
/// Between two questions: messages that follow at once would keep the sum from the processor.
constexpr Duration kPause = std::chrono::microseconds(300);
/// Of the matrices: 768 KiB together, in a core's own cache like the blocks of a library's
/// products.
constexpr size_t kEdge = 256;

double Median(std::vector<double> values) {
  std::ranges::sort(values);
  return values.empty() ? 0 : values[values.size() / 2];
}

/// Multiplies matrices on the first processor while it lives.
class Products {
 public:
  Products() : begun_(Now()), thread_([this] { Multiply(); }) {}
  ~Products() { Rate(); }
  Products(const Products&) = delete;
  Products& operator=(const Products&) = delete;

  /// Ends them: products a second.
  double Rate() {
    stop_.store(true);
    if (thread_.joinable()) {
      thread_.join();
      rate_ = count_ / Seconds(Now() - begun_);
    }
    return rate_;
  }

 private:
  void Multiply() {
    cpu_set_t first;
    CPU_ZERO(&first);
    CPU_SET(0, &first);
    pthread_setaffinity_np(pthread_self(), sizeof(first), &first);
    const std::vector<float> a(kEdge * kEdge, 1.0F);
    const std::vector<float> b(kEdge * kEdge, 0.5F);
    std::vector<float> c(kEdge * kEdge);
    while (!stop_.load(std::memory_order_relaxed)) {
      for (size_t i = 0; i < kEdge; ++i) {
        for (size_t k = 0; k < kEdge; ++k) {
          const float left = a[i * kEdge + k];
          for (size_t j = 0; j < kEdge; ++j) {
            c[i * kEdge + j] += left * b[k * kEdge + j];
          }
        }
      }
      ++count_;
    }
    sink_.store(c[0]);
  }

  std::atomic<bool> stop_ = false;
  std::atomic<float> sink_ = 0;  ///< So that nobody can leave the products out.
  double count_ = 0;
  double rate_ = 0;
  const Time begun_;
  std::thread thread_;
};

class Overlap {
 public:
  Overlap(Communicator& group, int64_t bytes, int repetitions, uint64_t tag)
      : group_(group),
        buffer_(static_cast<size_t>(bytes)),
        repetitions_(repetitions),
        tag_(tag) {}

  Result<std::vector<double>> Run() {
    HEDDLE_RETURN_IF_ERROR(Sum());  // Pages and connections are warm.
    HEDDLE_ASSIGN_OR_RETURN(const double alone, MedianOfSums());
    double products_alone = 0;
    double products_beside_copies = 0;
    double products_beside = 0;
    if (first()) {
      {
        Products products;
        std::this_thread::sleep_until(After(kControl));
        products_alone = products.Rate();
      }
      Products products;
      Copy(After(kControl));
      products_beside_copies = products.Rate();
    }
    HEDDLE_RETURN_IF_ERROR(group_.Barrier(Next()));
    std::optional<Products> products;
    if (first()) {
      products.emplace();
    }
    HEDDLE_ASSIGN_OR_RETURN(const double beside, MedianOfSums());
    if (products.has_value()) {
      products_beside = products->Rate();
    }
    HEDDLE_ASSIGN_OR_RETURN(const double idle, Latency(false));
    HEDDLE_ASSIGN_OR_RETURN(const double during, Latency(true));
    return std::vector<double>{
        products_alone, products_beside_copies, products_beside, alone, beside, idle, during};
  }

 private:
  bool first() const { return group_.rank() == 0; }
  /// Moves memory as fast as one core can, and does nothing else.
  void Copy(Time until) {
    Bytes other(buffer_.size());
    while (Now() < until) {
      std::memcpy(other.data(), buffer_.data(), other.size());
      std::memcpy(buffer_.data(), other.data(), other.size());
    }
  }
  CollectiveOptions Next() { return {.group = {}, .tag = ++tag_, .deadline = {}}; }
  Status Sum() { return group_.AllReduce(buffer_, DType::kF32, ReduceOp::kSum, Next()); }

  Result<double> MedianOfSums() {
    std::vector<double> seconds;
    for (int i = 0; i < repetitions_; ++i) {
      HEDDLE_RETURN_IF_ERROR(group_.Barrier(Next()));
      const Time begun = Now();
      HEDDLE_RETURN_IF_ERROR(Sum());
      seconds.push_back(Seconds(Now() - begun));
    }
    return Median(std::move(seconds));
  }

  // Rank 0 asks and rank 1 answers, until a question says that it is the last.
  Result<double> Latency(bool during) {
    HEDDLE_RETURN_IF_ERROR(group_.Barrier(Next()));
    const uint64_t there = ++tag_;
    const uint64_t back = ++tag_;
    std::vector<double> seconds;
    for (int i = 0; i < (during ? repetitions_ : 1); ++i) {
      Work sum;
      if (during) {
        const CollectiveOptions options = Next();
        sum = group_.Start(
            [this, options] {
              return group_.AllReduce(buffer_, DType::kF32, ReduceOp::kSum, options);
            },
            /*urgent=*/false);
      }
      if (first()) {
        HEDDLE_RETURN_IF_ERROR(Ask(there, back, during ? &sum : nullptr, seconds));
      } else if (group_.rank() == 1) {
        HEDDLE_RETURN_IF_ERROR(Answer(there, back));
      }
      HEDDLE_RETURN_IF_ERROR(sum.Wait());
    }
    return Median(std::move(seconds));
  }

  Status Ask(uint64_t there, uint64_t back, const Work* sum, std::vector<double>& seconds) {
    Bytes question(kActivationBytes);
    Bytes answer(kActivationBytes);
    for (int round = 1;; ++round) {
      const bool last = sum == nullptr ? round == kIdleRounds : sum->Done();
      question[0] = static_cast<std::byte>(last ? 1 : 0);
      std::this_thread::sleep_until(After(kPause));
      const Time begun = Now();
      const Work receive = group_.Recv(1, back, answer, true);
      const Work send = group_.Send(1, there, question, true);
      HEDDLE_RETURN_IF_ERROR(receive.Wait());
      HEDDLE_RETURN_IF_ERROR(send.Wait());
      if (last) {
        return Status::Ok();
      }
      seconds.push_back(Seconds(Now() - begun) / 2);
    }
  }

  Status Answer(uint64_t there, uint64_t back) {
    Bytes question(kActivationBytes);
    do {
      HEDDLE_RETURN_IF_ERROR(group_.Recv(0, there, question, true).Wait());
      HEDDLE_RETURN_IF_ERROR(group_.Send(0, back, question, true).Wait());
    } while (question[0] == std::byte{0});
    return Status::Ok();
  }

  Communicator& group_;
  Bytes buffer_;
  const int repetitions_;
  uint64_t tag_;
};

}  // namespace

Result<std::vector<double>> MeasureOverlap(Communicator& group,
                                           int64_t bytes,
                                           int repetitions,
                                           uint64_t tag) {
  return Overlap(group, bytes, repetitions, tag).Run();
}

}  // namespace heddle::comm
