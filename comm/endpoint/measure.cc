// Latency: half the median of small round trips, urgent like a pipeline's activations. Bandwidth,
// one direction after the other: messages that grow until one takes long enough, latency aside, to
// be measured well; the receiver answers each. So an emulated or slow link costs few bytes and a
// fast one gets large messages.
#include "comm/endpoint/measure.h"

#include <algorithm>
#include <vector>

#include "base/bytes.h"

namespace heddle::comm {

namespace {

constexpr int64_t kFirstBytes = int64_t{16} << 10;

std::span<std::byte> Raw(int64_t& value) {
  return std::as_writable_bytes(std::span(&value, 1));
}

class Pair {
 public:
  Pair(Communicator& group, int peer, uint64_t tag, Deadline deadline, const MeasureBudget& budget)
      : group_(group),
        peer_(peer),
        tag_(tag),
        deadline_(deadline),
        budget_(budget) {}

  // A thread that waits in a pipeline mostly sleeps when a message comes. Two ends that only
  // measure would spin or sleep by chance, and the result would be one of two values.
  Status Send(std::span<const std::byte> data) {
    return group_.Send(peer_, tag_, data, true).Wait(deadline_, Patience::kSleep);
  }
  Status Recv(std::span<std::byte> data) {
    return group_.Recv(peer_, tag_, data, true).Wait(deadline_, Patience::kSleep);
  }

  Result<double> Latency() {
    std::vector<double> seconds;
    const Time began = Now();
    int64_t more = 1;
    while (more != 0) {
      const bool enough = static_cast<int>(seconds.size()) + 1 >= budget_.round_trips ||
                          Now() - began >= budget_.latency;
      more = enough ? 0 : 1;
      const Time start = Now();
      HEDDLE_RETURN_IF_ERROR(Send(Raw(more)));
      int64_t echo = 0;
      HEDDLE_RETURN_IF_ERROR(Recv(Raw(echo)));
      seconds.push_back(Seconds(Now() - start));
    }
    std::nth_element(seconds.begin(),
                     seconds.begin() + static_cast<std::ptrdiff_t>(seconds.size() / 2),
                     seconds.end());
    return seconds[seconds.size() / 2] / 2;
  }

  Status AnswerLatency() {
    int64_t more = 1;
    while (more != 0) {
      HEDDLE_RETURN_IF_ERROR(Recv(Raw(more)));
      HEDDLE_RETURN_IF_ERROR(Send(Raw(more)));
    }
    return Status::Ok();
  }

  Result<double> Bandwidth(double latency) {
    TimedMessage message{.bytes = 0, .took = Duration(0), .latency_seconds = latency};
    const Time began = Now();
    int64_t bytes = std::min(kFirstBytes, budget_.most_bytes);
    while (bytes != 0) {
      message.bytes = bytes;
      Bytes data(static_cast<size_t>(bytes));
      int64_t announced = bytes;
      HEDDLE_RETURN_IF_ERROR(Send(Raw(announced)));
      int64_t answer = 0;
      HEDDLE_RETURN_IF_ERROR(Recv(Raw(answer)));  // The peer has posted its Recv.
      const Time start = Now();
      HEDDLE_RETURN_IF_ERROR(group_.Send(peer_, tag_, data, false).Wait(deadline_));
      HEDDLE_RETURN_IF_ERROR(Recv(Raw(answer)));
      const Time end = Now();
      message.took = end - start;
      bytes = NextMeasureBytes(message, end - began, budget_);
    }
    HEDDLE_RETURN_IF_ERROR(Send(Raw(bytes)));
    return RateOf(message);
  }

  Status AnswerBandwidth() {
    while (true) {
      int64_t bytes = 0;
      HEDDLE_RETURN_IF_ERROR(Recv(Raw(bytes)));
      if (bytes == 0) {
        return Status::Ok();
      }
      if (bytes < 0 || bytes > budget_.most_bytes) {
        return InvalidArgumentError("a measurement of {} bytes", bytes);
      }
      Bytes data(static_cast<size_t>(bytes));
      const Work arriving = group_.Recv(peer_, tag_, data, false);
      const Status announced = Send(Raw(bytes));
      // Nothing may be in flight when the buffer goes: a wait that is over at once cancels.
      const Status arrived = arriving.Wait(announced.ok() ? deadline_ : Deadline());
      HEDDLE_RETURN_IF_ERROR(announced);
      HEDDLE_RETURN_IF_ERROR(arrived);
      HEDDLE_RETURN_IF_ERROR(Send(Raw(bytes)));
    }
  }

 private:
  Communicator& group_;
  const int peer_;
  const uint64_t tag_;
  const Deadline deadline_;
  const MeasureBudget budget_;
};

}  // namespace

double RateOf(const TimedMessage& message) {
  const double took = Seconds(message.took);
  return static_cast<double>(message.bytes) /
         std::max({took - 2 * message.latency_seconds, took / 2, 1e-9});
}

int64_t NextMeasureBytes(const TimedMessage& message, Duration spent, const MeasureBudget& budget) {
  const double beyond = Seconds(message.took) - 2 * message.latency_seconds;
  if (beyond >= Seconds(budget.long_enough) || message.bytes >= budget.most_bytes ||
      spent >= budget.bandwidth) {
    return 0;
  }
  const int64_t factor = beyond < message.latency_seconds ? 16 : 4;
  return std::min(factor * message.bytes, budget.most_bytes);
}

Result<Link> MeasurePair(
    Communicator& group, int peer, uint64_t tag, Deadline deadline, const MeasureBudget& budget) {
  Pair pair(group, peer, tag, deadline, budget);
  Link link;
  link.transport = group.transport(peer);
  if (group.rank() < peer) {
    HEDDLE_ASSIGN_OR_RETURN(link.latency_seconds, pair.Latency());
    HEDDLE_RETURN_IF_ERROR(pair.AnswerLatency());
    HEDDLE_ASSIGN_OR_RETURN(link.bytes_per_second, pair.Bandwidth(link.latency_seconds));
    HEDDLE_RETURN_IF_ERROR(pair.AnswerBandwidth());
  } else {
    HEDDLE_RETURN_IF_ERROR(pair.AnswerLatency());
    HEDDLE_ASSIGN_OR_RETURN(link.latency_seconds, pair.Latency());
    HEDDLE_RETURN_IF_ERROR(pair.AnswerBandwidth());
    HEDDLE_ASSIGN_OR_RETURN(link.bytes_per_second, pair.Bandwidth(link.latency_seconds));
  }
  return link;
}

}  // namespace heddle::comm
