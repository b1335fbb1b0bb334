#include "comm/endpoint/device_trial.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <string_view>

#include "base/bytes.h"
#include "base/hash.h"

namespace heddle::comm {

namespace {

constexpr size_t kHalf = kTrialBytes / 2;
/// Longest reason that one end tells the other.
constexpr size_t kReasonBytes = 256;

/// One end of a trial. The first half of the memory is sent, the second is received into.
class Trial {
 public:
  Trial(Communicator& group, int peer, uint64_t tag, const DeviceTrial& own, Deadline deadline)
      : group_(group),
        peer_(peer),
        tag_(tag),
        own_(own),
        deadline_(deadline) {}

  Status Run() {
    for (const bool urgent : {false, true}) {
      HEDDLE_RETURN_IF_ERROR(Agree(Register(urgent)));
    }
    for (const bool urgent : {false, true}) {
      HEDDLE_RETURN_IF_ERROR(Agree(Write(urgent)));
      const Status exchanged = Exchange(urgent);
      if (!exchanged.ok() && exchanged.code() != StatusCode::kUnimplemented) {
        return exchanged;
      }
      HEDDLE_RETURN_IF_ERROR(Agree(exchanged.ok() ? Compare(urgent) : exchanged));
    }
    return Status::Ok();
  }

 private:
  Status Register(bool urgent) const {
    return own_.bytes.empty() ? UnimplementedError("no device memory")
                              : group_.RegisterDeviceMemory(peer_, own_.bytes, urgent);
  }
  /// What `sender` sends: other bytes in each generation, class and direction.
  Bytes PatternOf(int sender, bool urgent) const {
    const std::array<int64_t, 3> key{group_.generation(), sender, urgent ? 1 : 0};
    const uint64_t seed = Hash64(std::as_bytes(std::span(key)));
    Bytes pattern(kHalf);
    for (uint64_t at = 0; at < kHalf; at += sizeof(uint64_t)) {
      const uint64_t word = Hash64(std::as_bytes(std::span(&at, 1)), seed);
      std::memcpy(pattern.data() + at, &word, sizeof(word));
    }
    return pattern;
  }

  /// Every byte that does not arrive differs from the one that should.
  Status Write(bool urgent) const {
    Bytes host = PatternOf(group_.rank(), urgent);
    for (const std::byte expected : PatternOf(peer_, urgent)) {
      host.push_back(~expected);
    }
    return own_.write(host);
  }

  /// kUnimplemented: a message failed, and the group did not.
  Status Exchange(bool urgent) const {
    const Work in = group_.Recv(peer_, tag_, own_.bytes.subspan(kHalf, kHalf), urgent);
    const Work out = group_.Send(peer_, tag_, own_.bytes.first(kHalf), urgent);
    const Status sent = out.Wait(deadline_, Patience::kSleep);
    const Status received = in.Wait(deadline_, Patience::kSleep);
    return sent.ok() || (sent.code() == StatusCode::kUnimplemented && !received.ok()) ? received
                                                                                      : sent;
  }

  Status Compare(bool urgent) const {
    Bytes host(kTrialBytes);
    HEDDLE_RETURN_IF_ERROR(own_.read(host));
    const Bytes expected = PatternOf(peer_, urgent);
    const auto wrong = std::mismatch(expected.begin(), expected.end(),
                                     host.begin() + static_cast<std::ptrdiff_t>(kHalf));
    return wrong.first == expected.end()
               ? Status::Ok()
               : UnavailableError("byte {} of the pattern that {} wrote did not arrive",
                                  wrong.first - expected.begin(), group_.member_name(peer_));
  }

  /// Tells the other end of `own` and hears of its status. Ok: all is well at both.
  Status Agree(const Status& own) const {
    std::array<char, kReasonBytes> mine{};
    std::array<char, kReasonBytes> theirs{};
    if (!own.ok()) {
      own.message().copy(mine.data(), kReasonBytes - 1);
      mine.back() = '\1';
    }
    const Work in = group_.Recv(peer_, tag_, std::as_writable_bytes(std::span(theirs)), true);
    const Work out = group_.Send(peer_, tag_, std::as_bytes(std::span(mine)), true);
    HEDDLE_RETURN_IF_ERROR(out.Wait(deadline_, Patience::kSleep));
    HEDDLE_RETURN_IF_ERROR(in.Wait(deadline_, Patience::kSleep));
    if (!own.ok()) {
      return UnimplementedError("{}", own.message());
    }
    const bool fine = theirs.back() == '\0';
    theirs.back() = '\0';
    return fine ? Status::Ok()
                : UnimplementedError("at {}: {}", group_.member_name(peer_),
                                     std::string_view(theirs.data()));
  }

  Communicator& group_;
  const int peer_;
  const uint64_t tag_;
  const DeviceTrial& own_;
  const Deadline deadline_;
};

}  // namespace

Status TryPair(
    Communicator& group, int peer, uint64_t tag, const DeviceTrial& trial, Deadline deadline) {
  return Trial(group, peer, tag, trial, deadline).Run();
}

}  // namespace heddle::comm
