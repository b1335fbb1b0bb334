#include "elastic/worker/replicas/replicator.h"

#include <algorithm>
#include <utility>

#include "base/bytes.h"
#include "base/log.h"

namespace heddle::elastic {
namespace {

// Bound of one wait of a loop.
constexpr Duration kPoll = std::chrono::seconds(1);

// A shard is sent as three messages. Their tags differ from those of Programs and of moves.
enum class Piece : uint8_t { kHeader, kDescription, kBytes };
uint64_t TagOf(int64_t step, Piece piece) {
  return uint64_t{1} << 61 | static_cast<uint64_t>(step) << 2 | static_cast<uint64_t>(piece);
}

// An owner's first message, of a fixed size.
struct Header {
  static constexpr size_t kBytes = 4 * sizeof(int64_t);
  static constexpr int64_t kNothing = -1;  // As `bytes`: the owner failed to make its shard.
  int64_t generation = 0;
  int64_t step = 0;
  int64_t description = 0;
  int64_t bytes = 0;
};

Bytes EncodeHeader(const Header& header) {
  ByteWriter out;
  out.Put(header.generation);
  out.Put(header.step);
  out.Put(header.description);
  out.Put(header.bytes);
  return out.Take();
}

Result<Header> DecodeHeader(std::span<const std::byte> bytes) {
  ByteReader in(bytes);
  Header header;
  HEDDLE_ASSIGN_OR_RETURN(header.generation, in.Get<int64_t>());
  HEDDLE_ASSIGN_OR_RETURN(header.step, in.Get<int64_t>());
  HEDDLE_ASSIGN_OR_RETURN(header.description, in.Get<int64_t>());
  HEDDLE_ASSIGN_OR_RETURN(header.bytes, in.Get<int64_t>());
  return header;
}

// True for errors of a group that has ended, which are reported elsewhere.
bool IsGroupsEnd(const Status& status) {
  return status.code() == StatusCode::kUnavailable || status.code() == StatusCode::kAborted ||
         status.code() == StatusCode::kCancelled;
}

void Keep(Status& first, const Status& status) {
  if (first.ok()) {
    first = status;
  }
}

}  // namespace

checkpoint::WriterStats ReplicaFigures(metrics::Registry& registry) {
  return {.stall_seconds = &registry.GetHistogram(
              "heddle_replica_stall_seconds",
              "Time for which a snapshot in memory stopped training, in all.",
              {0.0001, 0.0003, 0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1, 3})};
}

// The own shard, being sent to its holders.
struct Replicator::Outgoing {
  Bytes header;
  Bytes description;
  std::vector<comm::Work> works;
};

// Another worker's shard, being received.
struct Replicator::Incoming {
  const ReplicaOwner* owner = nullptr;
  Bytes header;
  Bytes description;
  Part part;
  comm::Work header_work;
  std::vector<comm::Work> works;
};

Replicator::Replicator(ReplicatorOptions options)
    : options_(std::move(options)),
      newest_step_(options_.registry->GetGauge(
          "heddle_replica_step", "Step of the newest snapshot in memory that is complete here.")),
      seconds_(options_.registry->GetHistogram(
          "heddle_replica_seconds",
          "Time from a snapshot in memory until this worker and its holders have it.",
          {0.01, 0.03, 0.1, 0.3, 1, 3, 10, 30, 100})),
      failures_(options_.registry->GetCounter("heddle_replica_failures_total",
                                              "Snapshots in memory that failed here.")) {
  for (const ReplicaOwner& owner : options_.owners) {
    if (owner.rank == options_.group->rank()) {
      own_ = &owner;
    }
  }
  if (own_ != nullptr && !options_.compress) {
    part_bytes_ = checkpoint::LimitsOf(own_->boxes).raw_bytes;
  }
  thread_ = Thread("replicas", [this] { Run(); });
}

Replicator::~Replicator() {
  bool exchanging = false;
  {
    const MutexLock lock(mutex_);
    stop_ = true;
    exchanging = step_.has_value();
    changed_.NotifyAll();
  }
  if (exchanging) {
    options_.writer->Cancel();
    options_.group->Abort(CancelledError("generation {} is over", options_.generation));
  }
  thread_.Join();
}

bool Replicator::exchanging() const {
  const MutexLock lock(mutex_);
  return step_.has_value();
}

bool Replicator::failed() const {
  const MutexLock lock(mutex_);
  return failed_;
}

void Replicator::Take(int64_t step, bool whole, std::span<const checkpoint::BoxView> boxes) {
  if (newest_ && whole) {
    options_.store->MarkWhole({.step = *newest_, .generation = options_.generation});
  }
  newest_ = step;
  options_.store->Begin({.step = step, .generation = options_.generation});
  options_.changed();
  {
    const MutexLock lock(mutex_);
    step_ = step;
    begun_ = Now();
    own_status_.reset();
    changed_.NotifyAll();  // The thread posts its receives while the own shard is made.
  }
  if (own_ == nullptr) {
    return SetOwnPart(Status::Ok());
  }
  Result<Part> memory = options_.store->Take(part_bytes_);
  if (!memory.ok()) {
    return SetOwnPart(memory.status());
  }
  part_ = *std::move(memory);
  const auto snapshot = options_.writer->Snapshot(
      {.step = step,
       .generation = options_.generation,
       .wait = std::chrono::seconds(1),
       .deferred = true,
       .memory = part_,
       .compress = options_.compress},
      boxes,
      [this](const Result<checkpoint::FilePart>& part, const checkpoint::SnapshotInfo& /*info*/) {
        SetOwnPart(part.status());
      });
  if (!snapshot.ok()) {
    SetOwnPart(InternalError("the own part: {}", snapshot.status().ToString()));
  }
}

void Replicator::SetOwnPart(const Status& status) {
  const MutexLock lock(mutex_);
  own_status_ = status;
  changed_.NotifyAll();
}

void Replicator::Run() {
  options_.store->Stock(part_bytes_);
  for (;;) {
    int64_t step = 0;
    {
      const MutexLock lock(mutex_);
      while (!step_ && !stop_) {
        changed_.WaitUntil(mutex_, After(kPoll));
      }
      if (!step_) {
        return;
      }
      step = *step_;
    }
    const Status status = Exchange(step);
    part_.reset();
    options_.store->Trim();
    options_.store->Stock(part_bytes_);
    Finish(step, status);
  }
}

void Replicator::Finish(int64_t step, const Status& status) {
  if (status.ok()) {
    newest_step_.Set(static_cast<double>(step));
  } else if (!IsGroupsEnd(status)) {
    failures_.Add();
    if (!std::exchange(logged_, true)) {
      LogWarning("the snapshot of step {} is not complete in memory: {}", step, status.ToString());
    }
  }
  options_.changed();
  const MutexLock lock(mutex_);
  step_.reset();
  failed_ = !status.ok();
  if (status.ok()) {
    seconds_.Observe(Seconds(Now() - begun_));
  }
}

std::optional<Status> Replicator::OwnStatusBy(Deadline deadline) {
  const MutexLock lock(mutex_);
  while (!own_status_ && Now() < deadline) {
    changed_.WaitUntil(mutex_, deadline);
  }
  return own_status_;
}

// Waits until the own shard is made; after the deadline cancels it and waits until no thread writes
// to it any more.
Status Replicator::WaitForOwnPart(Deadline deadline) {
  if (const auto status = OwnStatusBy(deadline)) {
    return *status;
  }
  do {
    options_.writer->Cancel();
  } while (!OwnStatusBy(After(kPoll)));
  return DeadlineExceededError("the own part took more than {} s", Seconds(options_.timeout));
}

Status Replicator::Exchange(int64_t step) {
  const SnapshotKey key{.step = step, .generation = options_.generation};
  const Deadline deadline = After(options_.timeout);
  std::vector<Incoming> incoming = PostHeaders(step);
  const Status own = WaitForOwnPart(deadline);
  Outgoing out;
  if (own_ != nullptr) {
    Send(step, own, out);
    if (own.ok()) {
      part_bytes_ = part_->part.file.bytes;
      options_.store->Put(key, own_->rank, part_);
    }
  }
  Status first = own;
  // Each shard's receives are posted as soon as its header has come, independently of the others.
  for (Incoming& in : incoming) {
    Keep(first, PostPart(step, deadline, in));
  }
  for (Incoming& in : incoming) {
    if (in.part != nullptr) {
      Keep(first, Receive(step, deadline, in));
    }
  }
  for (const comm::Work& work : out.works) {
    Keep(first, work.Wait(deadline, comm::Patience::kSleep));
  }
  return first;
}

void Replicator::Send(int64_t step, const Status& own, Outgoing& out) {
  Header header{.generation = options_.generation, .step = step, .description = 0, .bytes = 0};
  if (own.ok()) {
    out.description = checkpoint::EncodeMemoryShard(part_->part);
    header.description = static_cast<int64_t>(out.description.size());
    header.bytes = part_->part.file.bytes;
  } else {
    header.bytes = Header::kNothing;
  }
  out.header = EncodeHeader(header);
  comm::Communicator& group = *options_.group;
  for (const int holder : own_->holders) {
    out.works.push_back(
        group.Send(holder, TagOf(step, Piece::kHeader), out.header, /*urgent=*/false));
    if (own.ok()) {
      out.works.push_back(
          group.Send(holder, TagOf(step, Piece::kDescription), out.description, /*urgent=*/false));
      out.works.push_back(
          group.Send(holder, TagOf(step, Piece::kBytes), part_->bytes(), /*urgent=*/false));
    }
  }
}

std::vector<Replicator::Incoming> Replicator::PostHeaders(int64_t step) {
  std::vector<Incoming> incoming;
  for (const ReplicaOwner& owner : options_.owners) {
    if (std::ranges::find(owner.holders, options_.group->rank()) != owner.holders.end()) {
      Incoming& in = incoming.emplace_back();
      in.owner = &owner;
      in.header.resize(Header::kBytes);
    }
  }
  for (Incoming& in : incoming) {
    in.header_work = options_.group->Recv(in.owner->rank, TagOf(step, Piece::kHeader), in.header,
                                          /*urgent=*/false);
  }
  return incoming;
}

// Waits for the header, checks it, and posts the receives of the rest.
Status Replicator::PostPart(int64_t step, Deadline deadline, Incoming& in) {
  HEDDLE_RETURN_IF_ERROR(in.header_work.Wait(deadline, comm::Patience::kSleep));
  HEDDLE_ASSIGN_OR_RETURN(const Header header, DecodeHeader(in.header));
  if (header.generation != options_.generation || header.step != step) {
    return DataLossError("rank {}'s part is of step {} in generation {}", in.owner->rank,
                         header.step, header.generation);
  }
  if (header.bytes == Header::kNothing) {
    return FailedPreconditionError("rank {} has no part", in.owner->rank);
  }
  const checkpoint::PartLimits limits = checkpoint::LimitsOf(in.owner->boxes);
  if (header.description < 1 || header.description > limits.description || header.bytes < 0 ||
      header.bytes > limits.bytes) {
    return DataLossError("rank {}'s part is of {} bytes, described by {}", in.owner->rank,
                         header.bytes, header.description);
  }
  HEDDLE_ASSIGN_OR_RETURN(in.part, options_.store->Take(header.bytes));
  in.part->part.file.bytes = header.bytes;
  in.description.resize(static_cast<size_t>(header.description));
  const std::span<std::byte> bytes(in.part->memory.data(), static_cast<size_t>(header.bytes));
  in.works.push_back(options_.group->Recv(in.owner->rank, TagOf(step, Piece::kDescription),
                                          in.description,
                                          /*urgent=*/false));
  in.works.push_back(
      options_.group->Recv(in.owner->rank, TagOf(step, Piece::kBytes), bytes, /*urgent=*/false));
  return Status::Ok();
}

Status Replicator::Receive(int64_t step, Deadline deadline, Incoming& in) {
  Status received;
  for (const comm::Work& work : in.works) {
    Keep(received, work.Wait(deadline, comm::Patience::kSleep));
  }
  HEDDLE_RETURN_IF_ERROR(received);
  auto decoded = checkpoint::DecodeMemoryShard(in.description);
  HEDDLE_RETURN_IF_ERROR(decoded.status().WithContext("rank {}'s part", in.owner->rank));
  checkpoint::FilePart part = *std::move(decoded);
  if (part.step != step || part.generation != options_.generation ||
      part.file.bytes != in.part->part.file.bytes) {
    return DataLossError("rank {}'s part describes {} bytes of step {} in generation {}",
                         in.owner->rank, part.file.bytes, part.step, part.generation);
  }
  HEDDLE_RETURN_IF_ERROR(checkpoint::CheckMemoryShard(part, in.owner->boxes)
                             .WithContext("rank {}'s part", in.owner->rank));
  in.part->part = std::move(part);
  options_.store->Put({.step = step, .generation = options_.generation}, in.owner->rank,
                      std::move(in.part));
  return Status::Ok();
}

}  // namespace heddle::elastic
