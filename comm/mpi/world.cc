#include "comm/mpi/world.h"

#include <cstring>
#include <utility>

#include <sys/epoll.h>

#include "base/check.h"
#include "comm/endpoint/communicator_impl.h"
#include "comm/group/group.h"
#include "comm/mpi/engine.h"
#include "comm/stream/event_loop.h"
#include "comm/stream/token_bucket.h"
#include "comm/transport/shared_memory.h"
#include "comm/transport/transport.h"

namespace heddle::comm {

namespace {

constexpr Duration kFinishTime = std::chrono::seconds(2);

/// What the ranks tell each other when a group forms.
struct Record {
  int64_t generation = 0;
  std::array<char, 64> name{};
};

class MpiConnection final : public Connection {
 public:
  MpiConnection(std::shared_ptr<MpiPipes> traffic_class, int peer)
      : traffic_class_(std::move(traffic_class)),
        peer_(peer),
        pipe_(traffic_class_->pipe(peer)) {}
  ~MpiConnection() override { ClosePipe(MpiClose::kBoth); }

  ConnectionInfo info() override { return {.transport = "mpi"}; }
  Result<size_t> Write(std::span<const iovec> parts) override {
    HEDDLE_ASSIGN_OR_RETURN(const size_t written, pipe_.Write(parts));
    if (written > 0) {
      traffic_class_->Notify(peer_);
    }
    return written;
  }
  Result<size_t> Read(std::span<std::byte> buffer) override {
    HEDDLE_ASSIGN_OR_RETURN(const size_t read, pipe_.Read(buffer));
    if (read > 0) {
      traffic_class_->Notify(peer_);  // A piece that was read to its end is a credit to return.
    }
    return read;
  }
  std::array<Watch, 2> Watches(bool /*want_read*/, bool /*want_write*/) override {
    // Edge-triggered, so that it needs no reading: each notification is an edge.
    return {Watch{.fd = pipe_.notification(), .events = static_cast<uint32_t>(EPOLLIN) | EPOLLET},
            Watch{}};
  }
  bool PrepareToWait(bool want_read, bool want_write) override {
    return pipe_.Arm(want_read, want_write);
  }
  void Close(Ending how) override {
    ClosePipe(how == Ending::kWriting ? MpiClose::kWrite : MpiClose::kReset);
  }

 private:
  void ClosePipe(MpiClose how) {
    pipe_.Close(how);
    traffic_class_->Notify(peer_);
  }

  const std::shared_ptr<MpiPipes> traffic_class_;
  const int peer_;
  MpiPipe& pipe_;
};

class MpiWorldImpl final : public MpiWorld {
 public:
  MpiWorldImpl(MpiOptions options,
               std::shared_ptr<MpiEngine> engine,
               std::shared_ptr<EventLoop> loop)
      : options_(std::move(options)),
        engine_(std::move(engine)),
        loop_(std::move(loop)) {}
  ~MpiWorldImpl() override {
    Finish(After(kFinishTime)).IgnoreError("whoever wants to know calls Finish");
  }

  int rank() const override { return engine_->rank(); }
  int size() const override { return engine_->size(); }

  Result<std::unique_ptr<Communicator>> Connect(int64_t generation,
                                                Duration operation_timeout,
                                                Deadline deadline) override;

  Status Finish(Deadline deadline) override {
    // The last words of communicators that are gone.
    open_->WaitForNone(deadline);
    const Status status = engine_->Finish(deadline);
    loop_->Stop();
    return status;
  }

 private:
  ChannelOptions OptionsFor(const GroupOptions& group, int peer, TrafficClass traffic_class) const;

  const MpiOptions options_;
  const std::shared_ptr<MpiEngine> engine_;
  const std::shared_ptr<EventLoop> loop_;
  const std::shared_ptr<TokenBucket> unlimited_ = std::make_shared<TokenBucket>();
  const std::shared_ptr<OpenCount> open_ = std::make_shared<OpenCount>();
};

ChannelOptions MpiWorldImpl::OptionsFor(const GroupOptions& group,
                                        int peer,
                                        TrafficClass traffic_class) const {
  const std::string& name = group.members[static_cast<size_t>(peer)].name;
  const metrics::Labels labels{{"transport", "mpi"}};
  ChannelOptions options;
  options.peer = peer;
  options.traffic_class = traffic_class;
  options.peer_name = name;
  options.generation = group.generation;
  options.operation_timeout = group.operation_timeout;
  options.outgoing = unlimited_;
  options.incoming = unlimited_;
  options.sent_bytes = &options_.metrics->GetCounter("heddle_comm_sent_bytes_total",
                                                     "Bytes sent to other workers.", labels);
  options.received_bytes = &options_.metrics->GetCounter(
      "heddle_comm_received_bytes_total", "Bytes received from other workers.", labels);
  options.lost =
      &options_.metrics->GetCounter("heddle_comm_peer_lost_total", "Peers whose connection broke.");
  options.open = open_;
  return options;
}

Result<std::unique_ptr<Communicator>> MpiWorldImpl::Connect(int64_t generation,
                                                            Duration operation_timeout,
                                                            Deadline deadline) {
  if (generation < 0) {
    return InvalidArgumentError("generation {}", generation);
  }
  Record own;
  own.generation = generation;
  std::memcpy(own.name.data(), options_.name.data(), options_.name.size());
  Bytes record(sizeof(own));
  std::memcpy(record.data(), &own, sizeof(own));
  std::array<std::shared_ptr<MpiPipes>, kTrafficClasses> traffic_classes;
  MpiEngine::Opened opened;
  for (const TrafficClass traffic_class : kEachTrafficClass) {
    HEDDLE_ASSIGN_OR_RETURN(opened, engine_->Open(record, deadline));
    traffic_classes[IndexOf(traffic_class)] = opened.traffic_class;
  }

  GroupOptions options;
  options.generation = generation;
  options.rank = rank();
  options.operation_timeout = operation_timeout;
  Status agreed;
  for (int other = 0; other < size(); ++other) {
    Record theirs;
    std::memcpy(&theirs, opened.records[static_cast<size_t>(other)].data(), sizeof(theirs));
    theirs.name.back() = '\0';
    options.members.push_back({.name = theirs.name.data(), .address = ""});
    if (options.members.back().name.empty()) {
      options.members.back().name = fmt::format("rank-{}", other);
    }
    if (theirs.generation != generation && agreed.ok()) {
      agreed = InvalidArgumentError("{} forms generation {}, this worker generation {}",
                                    options.members.back().name, theirs.generation, generation);
    }
    if (other != rank()) {
      options.peers.push_back(other);
    }
  }
  // No pair over MPI shares memory, and no caller can allocate any here: of these there are none.
  const auto group =
      std::make_shared<Group>(loop_, options, std::make_shared<SharedRegions>(nullptr));
  for (const TrafficClass traffic_class : kEachTrafficClass) {
    for (const int peer : options.peers) {
      group->Attach(std::make_unique<MpiConnection>(traffic_classes[IndexOf(traffic_class)], peer),
                    OptionsFor(options, peer, traffic_class));
    }
  }
  const Status formed = agreed.ok() ? group->WaitFormed(deadline) : agreed;
  if (!formed.ok()) {
    group->Abort(formed);
    return formed;
  }
  return MakeCommunicator(group);
}

}  // namespace

Result<std::unique_ptr<MpiWorld>> MpiWorld::Start(const MpiOptions& options, Deadline deadline) {
  HEDDLE_CHECK(options.metrics != nullptr, "an MPI world needs a metrics registry");
  if (options.name.size() >= std::tuple_size_v<decltype(Record::name)>) {
    return InvalidArgumentError("the name {} is longer than {} bytes", options.name,
                                std::tuple_size_v<decltype(Record::name)> - 1);
  }
  HEDDLE_ASSIGN_OR_RETURN(auto loop, EventLoop::Create());
  HEDDLE_ASSIGN_OR_RETURN(auto engine, MpiEngine::Start(options.silence_timeout, deadline));
  return std::unique_ptr<MpiWorld>(
      std::make_unique<MpiWorldImpl>(options, std::move(engine), std::move(loop)));
}

}  // namespace heddle::comm
