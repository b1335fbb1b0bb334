#include "comm/mpi/pipes.h"

#include <algorithm>
#include <utility>

namespace heddle::comm {

namespace {
/// How long a traffic class waits for its peers' ends once its own side has ended.
constexpr Duration kLinger = std::chrono::seconds(2);
}  // namespace

Status MpiError(int code, const char* call) {
  char text[MPI_MAX_ERROR_STRING] = {};
  int length = 0;
  if (MPI_Error_string(code, text, &length) != MPI_SUCCESS) {
    return UnavailableError("{}: error {}", call, code);
  }
  return UnavailableError("{}: {}", call, std::string(text, static_cast<size_t>(length)));
}

void KeepForever(std::shared_ptr<void> memory) {
  static Mutex mutex;
  static auto& kept = *new std::vector<std::shared_ptr<void>>();
  const MutexLock lock(mutex);
  kept.push_back(std::move(memory));
}

MpiEngine::Pipes::Pipes(Options options)
    : options_(std::move(options)),
      beat_interval_(options_.silence_timeout / 10),
      next_beat_(Now()),
      last_turn_(Now()),
      peers_(options_.pipes.size()),
      receivings_(options_.pipes.size() * kReceives),
      receive_requests_(receivings_.size(), MPI_REQUEST_NULL),
      is_ready_(options_.pipes.size()) {
  for (size_t peer = 0; peer < peers_.size(); ++peer) {
    peers_[peer].heard = Now();
    open_ += IsPeer(static_cast<int>(peer)) ? 1 : 0;
  }
}

void MpiEngine::Pipes::Release() {
  // Receives can be cancelled: of those behind a peer's end MPI lets go at once. A send cannot: one
  // that the peer has not matched keeps its piece.
  for (size_t i = 0; i < receive_requests_.size(); ++i) {
    MPI_Request& request = receive_requests_[i];
    if (request != MPI_REQUEST_NULL) {
      int done = 0;
      if (MPI_Cancel(&request) != MPI_SUCCESS ||
          MPI_Test(&request, &done, MPI_STATUS_IGNORE) != MPI_SUCCESS || done == 0) {
        MPI_Request_free(&request);
        KeepForever(std::move(receivings_[i].piece));
      }
    }
  }
  for (auto& sending : sendings_) {
    KeepForever(std::move(sending));
  }
  for (int rank = 0; rank < static_cast<int>(peers_.size()); ++rank) {
    if (IsPeer(rank)) {
      pipe(rank).Fail(CancelledError("the group has ended"));
    }
  }
  // A traffic class that ended on both sides has nothing in flight: only then is freeing its
  // communicator safe.
  if (Ended()) {
    MPI_Comm_free(&communicator_);
  }
}

void MpiEngine::Pipes::Notify(int peer) {
  {
    const MutexLock lock(mutex_);
    if (is_ready_[static_cast<size_t>(peer)]) {
      return;
    }
    is_ready_[static_cast<size_t>(peer)] = true;
    ready_.push_back(peer);
  }
  options_.wake();
}

void MpiEngine::Pipes::Begin(MPI_Comm communicator) {
  communicator_ = communicator;
  last_turn_ = Now();
  for (Peer& peer : peers_) {
    peer.heard = last_turn_;
  }
  for (size_t rank = 0; rank < peers_.size(); ++rank) {
    for (size_t slot = 0; slot < kReceives && IsPeer(static_cast<int>(rank)); ++slot) {
      Receive(static_cast<int>(rank), slot);
    }
  }
}

bool MpiEngine::Pipes::Turn(Time now) {
  // A process that was itself stopped, or got no CPU, has not listened: its peers' signs of life
  // are still to be read.
  if (now - last_turn_ > options_.silence_timeout / 2) {
    for (Peer& peer : peers_) {
      peer.heard = now;
    }
  }
  last_turn_ = now;
  bool moved = SendReady();
  moved = TestSends() || moved;
  moved = TestReceives(now) || moved;
  if (now >= next_beat_) {
    Beat(now);
    next_beat_ = now + beat_interval_;
  }
  if (open_ == 0 && closed_at_ == Time::max()) {
    closed_at_ = now;
  }
  return moved;
}

bool MpiEngine::Pipes::Over(Time now) const {
  if (open_ > 0) {
    return false;
  }
  if (closed_at_ != Time::max() && now - closed_at_ > kLinger) {
    return true;
  }
  if (!sendings_.empty()) {
    return false;
  }
  for (int rank = 0; rank < static_cast<int>(peers_.size()); ++rank) {
    const Peer& peer = peers_[static_cast<size_t>(rank)];
    if (IsPeer(rank) && !peer.end_received && !peer.failed) {
      return false;
    }
  }
  return true;
}

bool MpiEngine::Pipes::Ended() const {
  for (int rank = 0; rank < static_cast<int>(peers_.size()); ++rank) {
    const Peer& peer = peers_[static_cast<size_t>(rank)];
    if (IsPeer(rank) && (peer.failed || !peer.end_received || !peer.end_sent)) {
      return false;
    }
  }
  return sendings_.empty();
}

void MpiEngine::Pipes::Close() {
  for (int rank = 0; rank < static_cast<int>(peers_.size()); ++rank) {
    if (IsPeer(rank)) {
      pipe(rank).Close(MpiClose::kReset);
      Notify(rank);
    }
  }
}

void MpiEngine::Pipes::Fail(const Status& reason) {
  for (int rank = 0; rank < static_cast<int>(peers_.size()); ++rank) {
    if (IsPeer(rank)) {
      FailPeer(rank, reason);
    }
  }
}

bool MpiEngine::Pipes::SendReady() {
  std::vector<int> ready;
  {
    const MutexLock lock(mutex_);
    ready.swap(ready_);
    for (const int peer : ready) {
      is_ready_[static_cast<size_t>(peer)] = false;
    }
  }
  for (const int peer : ready) {
    Serve(peer);
  }
  return !ready.empty();
}

void MpiEngine::Pipes::Serve(int rank) {
  Peer& peer = peers_[static_cast<size_t>(rank)];
  if (peer.end_sent) {
    // The end is the last message: what came behind it would meet a traffic class that the peer has
    // given up, or the next one, to which MPI may give the same context.
    return;
  }
  const auto sending = [rank](Tag tag) {
    auto made = std::make_unique<Sending>();
    made->peer = rank;
    made->tag = tag;
    return made;
  };
  if (const uint32_t credits = pipe(rank).TakeCredits(); credits > 0 && !peer.failed) {
    auto credit = sending(kCredit);
    credit->credits = credits;
    Send(std::move(credit));
  }
  while (!peer.failed) {
    auto piece = pipe(rank).TakeOutgoing();
    if (piece == nullptr) {
      break;
    }
    auto data = sending(kData);
    data->piece = std::move(piece);
    Send(std::move(data));
  }
  if (pipe(rank).TakeEnd()) {
    peer.end_sent = true;
    --open_;
    if (!peer.failed) {
      Send(sending(kEnd));
    }
  }
}

void MpiEngine::Pipes::Send(std::unique_ptr<Sending> sending) {
  const void* data = &sending->credits;
  size_t size = sending->tag == kCredit ? sizeof(sending->credits) : 0;
  if (sending->piece != nullptr) {
    data = sending->piece->data.data();
    size = sending->piece->size;
  }
  MPI_Request request = MPI_REQUEST_NULL;
  const int code = MPI_Isend(data, static_cast<int>(size), MPI_BYTE, sending->peer, sending->tag,
                             communicator_, &request);
  if (code != MPI_SUCCESS) {
    FailPeer(sending->peer, MpiError(code, "MPI_Isend"));
    return;
  }
  in_flight_ += sending->tag != kHeartbeat ? 1 : 0;
  sendings_.push_back(std::move(sending));
  send_requests_.push_back(request);
}

bool MpiEngine::Pipes::TestSends() {
  bool moved = false;
  for (size_t i = 0; i < send_requests_.size();) {
    int done = 0;
    const int code = MPI_Test(&send_requests_[i], &done, MPI_STATUS_IGNORE);
    if (code == MPI_SUCCESS && done == 0) {
      ++i;
      continue;
    }
    const auto sending = std::move(sendings_[i]);
    sendings_[i] = std::move(sendings_.back());
    sendings_.pop_back();
    send_requests_[i] = send_requests_.back();
    send_requests_.pop_back();
    if (sending->tag == kHeartbeat) {
      peers_[static_cast<size_t>(sending->peer)].beat_in_flight = false;
    } else {
      --in_flight_;
    }
    if (code != MPI_SUCCESS) {
      FailPeer(sending->peer, MpiError(code, "sending"));
    }
    moved = moved || sending->tag != kHeartbeat;
  }
  return moved;
}

bool MpiEngine::Pipes::TestReceives(Time now) {
  int count = 0;
  indices_.resize(receive_requests_.size());
  statuses_.resize(receive_requests_.size());
  const int code =
      MPI_Testsome(static_cast<int>(receive_requests_.size()), receive_requests_.data(), &count,
                   indices_.data(), statuses_.data());
  if (code != MPI_SUCCESS && code != MPI_ERR_IN_STATUS) {
    Fail(MpiError(code, "MPI_Testsome"));
    return true;
  }
  bool moved = false;
  for (int i = 0; i < count && count != MPI_UNDEFINED; ++i) {
    const auto index = static_cast<size_t>(indices_[static_cast<size_t>(i)]);
    const MPI_Status& status = statuses_[static_cast<size_t>(i)];
    const int rank = static_cast<int>(index / kReceives);
    if (code == MPI_ERR_IN_STATUS && status.MPI_ERROR != MPI_SUCCESS) {
      FailPeer(rank, MpiError(status.MPI_ERROR, "receiving"));
      continue;
    }
    receivings_[index].arrived = true;
    receivings_[index].status = status;
    Peer& peer = peers_[static_cast<size_t>(rank)];
    peer.heard = now;
    moved = moved || status.MPI_TAG != kHeartbeat;
    while (!peer.failed && !peer.end_received) {
      const size_t slot = peer.next_receive;
      Receiving& next = receivings_[static_cast<size_t>(rank) * kReceives + slot];
      if (!next.arrived) {
        break;
      }
      peer.next_receive = (slot + 1) % kReceives;
      next.arrived = false;
      Handle(rank, next);
      if (!peer.failed && !peer.end_received) {
        Receive(rank, slot);
      }
    }
  }
  return moved;
}

void MpiEngine::Pipes::Receive(int peer, size_t slot) {
  const size_t index = static_cast<size_t>(peer) * kReceives + slot;
  Receiving& receiving = receivings_[index];
  if (receiving.piece == nullptr) {
    receiving.piece = std::make_unique_for_overwrite<MpiPiece>();
  }
  const int code = MPI_Irecv(receiving.piece->data.data(), static_cast<int>(kMpiPieceBytes),
                             MPI_BYTE, peer, MPI_ANY_TAG, communicator_, &receive_requests_[index]);
  if (code != MPI_SUCCESS) {
    FailPeer(peer, MpiError(code, "MPI_Irecv"));
  }
}

void MpiEngine::Pipes::Handle(int rank, Receiving& receiving) {
  int size = 0;
  Status status;
  if (const int code = MPI_Get_count(&receiving.status, MPI_BYTE, &size); code != MPI_SUCCESS) {
    status = MpiError(code, "MPI_Get_count");
  } else if (size < 0 || static_cast<size_t>(size) > kMpiPieceBytes) {
    status = DataLossError("a message of {} bytes", size);
  } else if (receiving.status.MPI_TAG == kData) {
    receiving.piece->size = static_cast<size_t>(size);
    receiving.piece->read = 0;
    status = pipe(rank).Deliver(std::move(receiving.piece));
  } else if (receiving.status.MPI_TAG == kCredit) {
    uint32_t credits = 0;
    if (size != sizeof(credits)) {
      status = DataLossError("a credit of {} bytes", size);
    } else {
      std::copy_n(receiving.piece->data.data(), sizeof(credits),
                  reinterpret_cast<std::byte*>(&credits));
      status = pipe(rank).AddCredits(credits);
    }
  } else if (receiving.status.MPI_TAG == kEnd) {
    peers_[static_cast<size_t>(rank)].end_received = true;
    pipe(rank).Fail(UnavailableError("the peer closed the connection"));
  } else if (receiving.status.MPI_TAG != kHeartbeat) {
    status = DataLossError("a message of an unknown kind {}", receiving.status.MPI_TAG);
  }
  if (!status.ok()) {
    FailPeer(rank, status);
  } else {
    Notify(rank);  // Credits may let pieces go, a closed pipe's piece is a credit to return.
  }
}

void MpiEngine::Pipes::Beat(Time now) {
  for (int rank = 0; rank < static_cast<int>(peers_.size()); ++rank) {
    Peer& peer = peers_[static_cast<size_t>(rank)];
    if (!IsPeer(rank) || peer.failed) {
      continue;
    }
    if (!peer.end_received && now - peer.heard > options_.silence_timeout) {
      FailPeer(rank, UnavailableError("no sign of life over MPI for {:.1f} s",
                                      Seconds(now - peer.heard)));
      continue;
    }
    if (!peer.beat_in_flight && !peer.end_sent) {
      auto beat = std::make_unique<Sending>();
      beat->peer = rank;
      peer.beat_in_flight = true;
      Send(std::move(beat));
    }
  }
}

void MpiEngine::Pipes::FailPeer(int rank, const Status& reason) {
  Peer& peer = peers_[static_cast<size_t>(rank)];
  if (peer.failed || peer.end_received) {
    return;
  }
  peer.failed = true;
  pipe(rank).Fail(reason);
  options_.poison(reason.WithContext("rank {}", rank));
  Notify(rank);
}

}  // namespace heddle::comm
