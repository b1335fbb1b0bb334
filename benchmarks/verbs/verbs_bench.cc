// One end of a pair over RDMA: bandwidth and latency of Heddle's own messages, as ib_write_bw and
// ib_send_lat measure theirs. Started twice by task.py, in one guest or in two.
//
//   verbs_bench RANK FOLDER NAME DEVICE HOST registered|messages|stream bw|lat BYTES COUNT
//
// FOLDER is shared by both ends, which leave their addresses there under NAME. "messages" are a
// communicator's from ordinary memory, "registered" from shared buffers; "stream" is the connection
// below it, without matching, framing and the hand-over between its thread and the caller's, which
// is what perftest compares with. Rank 0 prints one line: "bytes_per_second VALUE", or "seconds
// MEDIAN AVERAGE P99" (half a round trip).
#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include <poll.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/system/file.h"
#include "comm/communicator.h"
#include "comm/transport/registry.h"
#include "comm/transport/transport.h"
#include "metrics/registry.h"

namespace heddle::comm {
namespace {

constexpr size_t kInFlight = 32;  // Messages; ib_write_bw has 128 or 16.
/// Of all messages together: as with perftest, what comes in is not looked at and lands in the same
/// place again and again.
constexpr size_t kMemory = size_t{4} << 20;
constexpr int kWarmUp = 20;

struct Settings {
  int rank = 0;
  std::string folder;
  std::string name;
  std::string device;
  std::string host;
  std::string layer;
  std::string test;
  size_t bytes = 0;
  int count = 0;
};

void Tell(const std::string& path, const std::string& text) {
  std::ofstream(path + ".part") << text;
  std::rename((path + ".part").c_str(), path.c_str());
}

Result<std::string> Hear(const std::string& path) {
  const Time deadline = After(std::chrono::seconds(20));
  auto text = ReadFile(path, 4096);
  // A guest writes back later: the other may see the name before the content.
  while ((!text.ok() || text->empty()) && Now() < deadline) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    text = ReadFile(path, 4096);
  }
  return text;
}

Status Bandwidth(Communicator& group, std::span<std::byte> memory, const Settings& settings) {
  Bytes token(1);
  // The receiver's buffers are posted before the clock starts, as a one-sided write's are.
  std::deque<Work> works;
  const int other = 1 - settings.rank;
  Time start;
  for (int i = -kWarmUp; i < settings.count; ++i) {
    if (i == 0) {
      for (; !works.empty(); works.pop_front()) {
        HEDDLE_RETURN_IF_ERROR(works.front().Wait());
      }
      HEDDLE_RETURN_IF_ERROR(group.Barrier({.group = {}, .tag = 1, .deadline = {}}));
      start = Now();
    }
    const size_t place = static_cast<size_t>(i + kWarmUp) % (memory.size() / settings.bytes);
    const auto buffer = memory.subspan(place * settings.bytes, settings.bytes);
    if (works.size() == kInFlight) {
      HEDDLE_RETURN_IF_ERROR(works.front().Wait());
      works.pop_front();
    }
    works.push_back(settings.rank == 0 ? group.Send(other, 7, buffer, false)
                                       : group.Recv(other, 7, buffer, false));
  }
  for (; !works.empty(); works.pop_front()) {
    HEDDLE_RETURN_IF_ERROR(works.front().Wait());
  }
  HEDDLE_RETURN_IF_ERROR(
      (settings.rank == 0 ? group.Recv(other, 8, token, true) : group.Send(other, 8, token, true))
          .Wait());
  const double seconds = Seconds(Now() - start);
  if (settings.rank == 0) {
    std::printf("bytes_per_second %.6g\n",
                static_cast<double>(settings.bytes) * settings.count / seconds);
  }
  return Status::Ok();
}

void PrintLatency(std::vector<double>& halves, double average) {
  std::sort(halves.begin(), halves.end());
  std::printf("seconds %.6g %.6g %.6g\n", halves[halves.size() / 2], average,
              halves[halves.size() * 99 / 100]);
}

Status Latency(Communicator& group, const Settings& settings) {
  Bytes out(settings.bytes);
  Bytes in(settings.bytes);
  const int other = 1 - settings.rank;
  std::vector<double> halves;
  Time start;
  Time last;
  for (int i = -kWarmUp; i < settings.count; ++i) {
    if (i == 0) {
      start = last = Now();
    }
    const Work receive = group.Recv(other, 7, in, true);
    if (settings.rank == 0) {
      HEDDLE_RETURN_IF_ERROR(group.Send(other, 7, out, true).Wait());
      HEDDLE_RETURN_IF_ERROR(receive.Wait());
    } else {
      HEDDLE_RETURN_IF_ERROR(receive.Wait());
      HEDDLE_RETURN_IF_ERROR(group.Send(other, 7, out, true).Wait());
    }
    if (i >= 0 && settings.rank == 0) {
      const Time now = Now();
      halves.push_back(Seconds(now - last) / 2);
      last = now;
    }
  }
  if (settings.rank == 0) {
    PrintLatency(halves, Seconds(last - start) / 2 / settings.count);
  }
  return Status::Ok();
}

/// Waits until the connection is ready for what is wanted.
void Await(Connection& connection, bool want_read, bool want_write) {
  const auto watches = connection.Watches(want_read, want_write);
  if (!connection.PrepareToWait(want_read, want_write)) {
    return;
  }
  std::array<pollfd, 2> ready{pollfd{.fd = watches[0].fd, .events = POLLIN, .revents = 0},
                              pollfd{.fd = watches[1].fd, .events = POLLIN, .revents = 0}};
  ::poll(ready.data(), ready.size(), 1000);
  for (const pollfd& one : ready) {
    if (one.revents != 0) {
      connection.OnReady(one.fd, EPOLLIN);
    }
  }
}

Status WriteAll(Connection& connection, Bytes& bytes) {
  for (size_t done = 0; done < bytes.size();) {
    const iovec part{.iov_base = bytes.data() + done, .iov_len = bytes.size() - done};
    HEDDLE_ASSIGN_OR_RETURN(const size_t written, connection.Write(std::span(&part, 1)));
    done += written;
    if (written == 0) {
      Await(connection, false, true);
    }
  }
  return Status::Ok();
}

Status ReadAll(Connection& connection, Bytes& bytes) {
  for (size_t done = 0; done < bytes.size();) {
    HEDDLE_ASSIGN_OR_RETURN(const size_t read, connection.Read(std::span(bytes).subspan(done)));
    done += read;
    if (read == 0) {
      Await(connection, true, false);
    }
  }
  return Status::Ok();
}

Status StreamBandwidth(Connection& stream, const Settings& settings) {
  Bytes buffer(settings.bytes);
  Bytes token(1);
  Time start;
  for (int i = -kWarmUp; i < settings.count; ++i) {
    if (i == 0) {
      HEDDLE_RETURN_IF_ERROR(settings.rank == 0 ? ReadAll(stream, token) : WriteAll(stream, token));
      start = Now();
    }
    HEDDLE_RETURN_IF_ERROR(settings.rank == 0 ? WriteAll(stream, buffer) : ReadAll(stream, buffer));
  }
  HEDDLE_RETURN_IF_ERROR(settings.rank == 0 ? ReadAll(stream, token) : WriteAll(stream, token));
  const double seconds = Seconds(Now() - start);
  if (settings.rank == 0) {
    std::printf("bytes_per_second %.6g\n",
                static_cast<double>(settings.bytes) * settings.count / seconds);
  }
  return Status::Ok();
}

Status StreamLatency(Connection& stream, const Settings& settings) {
  Bytes buffer(settings.bytes);
  std::vector<double> halves;
  Time start;
  Time last;
  for (int i = -kWarmUp; i < settings.count; ++i) {
    if (i == 0) {
      start = last = Now();
    }
    if (settings.rank == 0) {
      HEDDLE_RETURN_IF_ERROR(WriteAll(stream, buffer));
    }
    HEDDLE_RETURN_IF_ERROR(ReadAll(stream, buffer));
    if (settings.rank == 1) {
      HEDDLE_RETURN_IF_ERROR(WriteAll(stream, buffer));
    } else if (i >= 0) {
      const Time now = Now();
      halves.push_back(Seconds(now - last) / 2);
      last = now;
    }
  }
  if (settings.rank == 0) {
    PrintLatency(halves, Seconds(last - start) / 2 / settings.count);
  }
  return Status::Ok();
}

EndpointOptions OptionsOf(const Settings& settings, metrics::Registry* registry) {
  EndpointOptions options;
  options.config = {
      .worker = std::to_string(settings.rank), .job = "benchmark", .secret = "benchmark"};
  options.bind_host = settings.host;
  options.open = {"verbs", "tcp"};
  options.transport_options["verbs"]["devices"] = settings.device;
  options.metrics = registry;
  return options;
}

/// A connection without the handshake that would come before it.
Result<std::unique_ptr<Connection>> MakeStream(const Settings& settings,
                                               const Transport& transport) {
  const std::string place = settings.folder + "/" + settings.name + ".address";
  UniqueFd socket;
  if (settings.rank == 1) {
    Tell(place, transport.address());
    pollfd listener{.fd = transport.listeners().front().socket, .events = POLLIN, .revents = 0};
    ::poll(&listener, 1, 20000);
    socket.Reset(::accept4(listener.fd, nullptr, nullptr, SOCK_NONBLOCK));
  } else {
    HEDDLE_ASSIGN_OR_RETURN(const std::string address, Hear(place));
    const auto routes = transport.RoutesTo({}, {{"verbs", address}}, 0);
    if (routes.empty()) {
      return UnavailableError("no route from {} to {}", transport.address(), address);
    }
    HEDDLE_ASSIGN_OR_RETURN(socket, transport.Dial(routes.front()));
    pollfd open{.fd = socket.get(), .events = POLLOUT, .revents = 0};
    ::poll(&open, 1, 20000);
  }
  const auto setup = transport.Begin(std::move(socket), {.dialled = settings.rank == 0});
  const Time deadline = After(std::chrono::seconds(20));
  while (Now() < deadline) {
    HEDDLE_ASSIGN_OR_RETURN(auto connection, setup->Advance());
    if (connection != nullptr) {
      return connection;
    }
    pollfd ready{.fd = setup->fd(), .events = POLLIN, .revents = 0};
    ::poll(&ready, 1, 1000);
  }
  return DeadlineExceededError("no connection");
}

Status RunStream(const Settings& settings) {
  HEDDLE_ASSIGN_OR_RETURN(const auto transport,
                          OpenTransport("verbs", {.bind_host = settings.host,
                                                  .options = {{"devices", settings.device}}}));
  HEDDLE_ASSIGN_OR_RETURN(const auto stream, MakeStream(settings, *transport));
  HEDDLE_RETURN_IF_ERROR(settings.test == "bw" ? StreamBandwidth(*stream, settings)
                                               : StreamLatency(*stream, settings));
  // Both have read everything before either goes.
  Bytes token(1);
  HEDDLE_RETURN_IF_ERROR(settings.rank == 0 ? WriteAll(*stream, token) : ReadAll(*stream, token));
  return settings.rank == 1 ? WriteAll(*stream, token) : ReadAll(*stream, token);
}

Status RunMessages(const Settings& settings) {
  metrics::Registry registry;
  HEDDLE_ASSIGN_OR_RETURN(auto endpoint, Endpoint::Create(OptionsOf(settings, &registry)));
  const std::string place = settings.folder + "/" + settings.name + ".";
  Tell(place + std::to_string(settings.rank), endpoint->address());
  GroupOptions group;
  group.generation = 1;
  group.rank = settings.rank;
  for (int rank = 0; rank < 2; ++rank) {
    HEDDLE_ASSIGN_OR_RETURN(std::string address, Hear(place + std::to_string(rank)));
    group.members.push_back({std::to_string(rank), std::move(address)});
  }
  group.peers = {1 - settings.rank};
  HEDDLE_ASSIGN_OR_RETURN(auto pair, endpoint->Connect(group, After(std::chrono::seconds(20))));
  if (pair->transport(1 - settings.rank) != "verbs") {
    return UnavailableError("the pair uses {}", pair->transport(1 - settings.rank));
  }
  Bytes own;
  SharedBuffer shared;
  std::span<std::byte> memory;
  const size_t room = std::max(settings.bytes, kMemory);
  if (settings.layer == "registered") {
    HEDDLE_ASSIGN_OR_RETURN(shared, endpoint->AllocateShared(room));
    memory = shared.bytes();
  } else {
    own.resize(room);
    memory = own;
  }
  HEDDLE_RETURN_IF_ERROR(settings.test == "bw" ? Bandwidth(*pair, memory, settings)
                                               : Latency(*pair, settings));
  return pair->Barrier({.group = {}, .tag = 2, .deadline = {}});
}

}  // namespace
}  // namespace heddle::comm

int main(int argc, char** argv) {
  if (argc != 10) {
    std::fprintf(stderr,
                 "usage: verbs_bench RANK FOLDER NAME DEVICE HOST registered|messages|stream "
                 "bw|lat BYTES COUNT\n");
    return 2;
  }
  const heddle::comm::Settings settings{.rank = std::atoi(argv[1]),
                                        .folder = argv[2],
                                        .name = argv[3],
                                        .device = argv[4],
                                        .host = argv[5],
                                        .layer = argv[6],
                                        .test = argv[7],
                                        .bytes = static_cast<size_t>(std::atoll(argv[8])),
                                        .count = std::atoi(argv[9])};
  const heddle::Status status = settings.layer == "stream" ? heddle::comm::RunStream(settings)
                                                           : heddle::comm::RunMessages(settings);
  if (!status.ok()) {
    std::fprintf(stderr, "verbs_bench: %s\n", status.ToString().c_str());
  }
  return status.ok() ? 0 : 1;
}
