// A program of two guests of scripts/rdma-vm, on plain libibverbs, for the tests of the guests
// themselves: guest 0 writes numbered patterns into the memory of guest 1 and says what became of
// them.
//
//   write_probe WRITES [AT COMMAND [THEN]]
//
// Guest 0 makes WRITES one-sided writes of 4 KiB, one at a time, each completion awaited asleep.
// Before write number AT (the first is 1) it gives COMMAND to scripts/vm/control. When a write
// fails it gives THEN, if there is one. It prints one line of JSON: the writes completed, the
// status of the last completion, and the milliseconds it took. Guest 1 prints the number of the
// pattern that its memory holds at the end.
//
// Transport timeout 14 and 3 retries: a silent peer is an error after about 0.3 s. Every wait has a
// bound.
#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>

#include <arpa/inet.h>
#include <infiniband/verbs.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

namespace {

constexpr uint16_t kPort = 7471;
constexpr size_t kBytes = 4096;
constexpr int kWaitMs = 20'000;
using Clock = std::chrono::steady_clock;

[[noreturn]] void Fail(const std::string& what) {
  std::fprintf(stderr, "write_probe: %s: %s\n", what.c_str(), std::strerror(errno));
  std::exit(1);
}

template <typename T>
T* Need(T* pointer, const char* what) {
  if (pointer == nullptr) Fail(what);
  return pointer;
}

void Need(int error, const char* what) {
  if (error == 0) return;
  errno = error;
  Fail(what);
}

// What each side tells the other over TCP; both are of one build.
struct Endpoint {
  ibv_gid gid;
  uint64_t address;
  uint32_t key;
  uint32_t queue_pair;
};

struct Verbs {
  ibv_context* context = nullptr;
  ibv_pd* domain = nullptr;
  ibv_comp_channel* channel = nullptr;
  ibv_cq* completions = nullptr;
  ibv_qp* pair = nullptr;
  ibv_mr* region = nullptr;
  uint8_t gid_index = 0;
  alignas(4096) std::array<uint32_t, kBytes / 4> memory{};
};

// The GID of the interface's IPv4 address; its index is not the same everywhere.
uint8_t FindGid(ibv_context* context, ibv_gid* gid) {
  ibv_gid_entry entry{};
  for (uint32_t i = 0; i < 16; ++i) {
    if (ibv_query_gid_ex(context, 1, i, &entry, 0) != 0 || entry.gid_type != IBV_GID_TYPE_ROCE_V2)
      continue;
    static constexpr uint8_t kMapped[12] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};
    if (std::memcmp(entry.gid.raw, kMapped, sizeof kMapped) != 0) continue;
    *gid = entry.gid;
    return static_cast<uint8_t>(i);
  }
  errno = ENOENT;
  Fail("GID of an IPv4 address");
}

Endpoint Open(Verbs& verbs) {
  int count = 0;
  ibv_device** devices = Need(ibv_get_device_list(&count), "ibv_get_device_list");
  verbs.context = Need(count > 0 ? ibv_open_device(devices[0]) : nullptr, "ibv_open_device");
  ibv_free_device_list(devices);
  verbs.domain = Need(ibv_alloc_pd(verbs.context), "ibv_alloc_pd");
  verbs.channel = Need(ibv_create_comp_channel(verbs.context), "ibv_create_comp_channel");
  verbs.completions =
      Need(ibv_create_cq(verbs.context, 16, nullptr, verbs.channel, 0), "ibv_create_cq");
  const int access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE;
  verbs.region = Need(ibv_reg_mr(verbs.domain, verbs.memory.data(), kBytes, access), "ibv_reg_mr");
  ibv_qp_init_attr made{};
  made.send_cq = made.recv_cq = verbs.completions;
  made.cap = {16, 16, 1, 1, 0};
  made.qp_type = IBV_QPT_RC;
  verbs.pair = Need(ibv_create_qp(verbs.domain, &made), "ibv_create_qp");
  ibv_qp_attr attributes{};
  attributes.qp_state = IBV_QPS_INIT;
  attributes.port_num = 1;
  attributes.qp_access_flags = IBV_ACCESS_REMOTE_WRITE;
  Need(ibv_modify_qp(verbs.pair, &attributes,
                     IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS),
       "INIT");
  Endpoint own{};
  verbs.gid_index = FindGid(verbs.context, &own.gid);
  own.address = reinterpret_cast<uintptr_t>(verbs.memory.data());
  own.key = verbs.region->rkey;
  own.queue_pair = verbs.pair->qp_num;
  return own;
}

void Connect(Verbs& verbs, const Endpoint& peer) {
  ibv_port_attr port{};
  Need(ibv_query_port(verbs.context, 1, &port), "ibv_query_port");
  ibv_qp_attr attributes{};
  attributes.qp_state = IBV_QPS_RTR;
  attributes.path_mtu = port.active_mtu;
  attributes.dest_qp_num = peer.queue_pair;
  attributes.max_dest_rd_atomic = 1;
  attributes.min_rnr_timer = 12;
  attributes.ah_attr.is_global = 1;
  attributes.ah_attr.port_num = 1;
  attributes.ah_attr.grh.dgid = peer.gid;
  attributes.ah_attr.grh.sgid_index = verbs.gid_index;
  attributes.ah_attr.grh.hop_limit = 64;
  Need(ibv_modify_qp(verbs.pair, &attributes,
                     IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                         IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER),
       "RTR");
  attributes.qp_state = IBV_QPS_RTS;
  attributes.timeout = 14;
  attributes.retry_cnt = 3;
  attributes.rnr_retry = 3;
  attributes.max_rd_atomic = 1;
  Need(ibv_modify_qp(verbs.pair, &attributes,
                     IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
                         IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC),
       "RTS");
}

int Meet(bool writer) {
  sockaddr_in where{};
  where.sin_family = AF_INET;
  where.sin_port = htons(kPort);
  where.sin_addr.s_addr = writer ? inet_addr("10.9.0.2") : INADDR_ANY;
  sockaddr* address = reinterpret_cast<sockaddr*>(&where);
  const auto limit = Clock::now() + std::chrono::milliseconds(kWaitMs);
  int connection = -1;
  if (writer) {
    // The peer may not listen yet.
    while (true) {
      connection = socket(AF_INET, SOCK_STREAM, 0);
      if (connect(connection, address, sizeof where) == 0) break;
      if (Clock::now() > limit) Fail("connect");
      close(connection);
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
  } else {
    const int listener = socket(AF_INET, SOCK_STREAM, 0);
    if (bind(listener, address, sizeof where) != 0 || listen(listener, 1) != 0) Fail("listen");
    pollfd ready{listener, POLLIN, 0};
    if (poll(&ready, 1, kWaitMs) != 1) Fail("nobody connected");
    connection = accept(listener, nullptr, nullptr);
    close(listener);
  }
  const timeval bound{kWaitMs / 1000, 0};
  setsockopt(connection, SOL_SOCKET, SO_RCVTIMEO, &bound, sizeof bound);
  return connection;
}

void Receive(int connection, void* data, size_t size) {
  if (recv(connection, data, size, MSG_WAITALL) != static_cast<ssize_t>(size))
    Fail("the other guest");
}

void Send(int connection, const void* data, size_t size) {
  if (send(connection, data, size, MSG_NOSIGNAL) != static_cast<ssize_t>(size))
    Fail("the other guest");
}

// One write of the pattern; its completion's status.
ibv_wc_status Write(Verbs& verbs, const Endpoint& peer, uint32_t pattern) {
  verbs.memory.fill(pattern);
  Need(ibv_req_notify_cq(verbs.completions, 0), "ibv_req_notify_cq");
  ibv_sge piece{reinterpret_cast<uintptr_t>(verbs.memory.data()), kBytes, verbs.region->lkey};
  ibv_send_wr request{}, *bad = nullptr;
  request.sg_list = &piece;
  request.num_sge = 1;
  request.opcode = IBV_WR_RDMA_WRITE;
  request.send_flags = IBV_SEND_SIGNALED;
  request.wr.rdma.remote_addr = peer.address;
  request.wr.rdma.rkey = peer.key;
  Need(ibv_post_send(verbs.pair, &request, &bad), "ibv_post_send");
  ibv_wc completion{};
  pollfd ready{verbs.channel->fd, POLLIN, 0};
  if (poll(&ready, 1, kWaitMs) != 1) Fail("no completion");
  ibv_cq* queue = nullptr;
  void* cookie = nullptr;
  Need(ibv_get_cq_event(verbs.channel, &queue, &cookie), "ibv_get_cq_event");
  ibv_ack_cq_events(queue, 1);
  if (ibv_poll_cq(verbs.completions, 1, &completion) != 1) Fail("an event without a completion");
  return completion.status;
}

void Control(const char* control, const std::string& command) {
  if (!command.empty() && std::system((std::string(control) + " " + command).c_str()) != 0)
    Fail(command);
}

}  // namespace

int main(int argc, char** argv) {
  const char* guest = std::getenv("HEDDLE_GUEST");
  const char* control = std::getenv("HEDDLE_TEST_CONTROL");
  if (argc < 2 || guest == nullptr || control == nullptr) {
    std::fprintf(stderr, "usage: write_probe WRITES [AT COMMAND [THEN]], in two guests\n");
    return 2;
  }
  const bool writer = std::string(guest) == "0";
  const uint32_t writes = static_cast<uint32_t>(std::strtoul(argv[1], nullptr, 10));
  const uint32_t at = argc > 3 ? static_cast<uint32_t>(std::strtoul(argv[2], nullptr, 10)) : 0;
  static Verbs verbs;
  const Endpoint own = Open(verbs);
  Endpoint peer{};
  const int connection = Meet(writer);
  Send(connection, &own, sizeof own);
  Receive(connection, &peer, sizeof peer);
  Connect(verbs, peer);
  char byte = 0;
  if (!writer) {
    Send(connection, &byte, 1);
    Receive(connection, &byte, 1);
    if (!std::all_of(verbs.memory.begin(), verbs.memory.end(),
                     [](uint32_t i) { return i == verbs.memory[0]; })) {
      std::fprintf(stderr, "write_probe: the memory holds parts of two patterns\n");
      return 1;
    }
    std::printf("{\"holds\": %u}\n", verbs.memory[0]);
    return 0;
  }
  // The other side is ready to be written to.
  Receive(connection, &byte, 1);
  ibv_wc_status status = IBV_WC_SUCCESS;
  uint32_t completed = 0;
  double milliseconds = 0;
  while (completed < writes && status == IBV_WC_SUCCESS) {
    if (completed + 1 == at) Control(control, argv[3]);
    const auto begin = Clock::now();
    status = Write(verbs, peer, completed + 1);
    milliseconds = std::chrono::duration<double, std::milli>(Clock::now() - begin).count();
    completed += status == IBV_WC_SUCCESS ? 1 : 0;
  }
  std::printf("{\"completed\": %u, \"status\": \"%s\", \"milliseconds\": %.1f}\n", completed,
              ibv_wc_status_str(status), milliseconds);
  std::fflush(stdout);
  if (argc > 4) Control(control, argv[4]);
  // A peer that is gone does not take this any more.
  send(connection, &byte, 1, MSG_NOSIGNAL);
  return 0;
}
