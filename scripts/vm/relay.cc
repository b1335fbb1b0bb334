// The network of scripts/rdma-vm: a switch in user space that copies Ethernet frames between
// descriptors and, on command, loses, delays and paces them. It needs no privilege.
//
//   relay FD…    one descriptor for each port: an AF_UNIX datagram socket or a tap (one read is one
//   frame)
//
// Commands come on standard input, one a line, and each is answered by one line on standard output:
// "ok", a value, or "error: …". FROM and TO are numbers of ports (a guest's number is its port's)
// or "*" for all; a command acts on one direction. KIND is roce (UDP to port 4791, the default),
// tcp (what iWARP uses) or any.
//
// clang-format off
//   cut FROM TO                     loses every frame until heal
//   drop FROM TO N [COUNT] [KIND]   loses the N-th frame of KIND from now on (1 is the next) and the COUNT - 1 after it
//   drop-every FROM TO N [KIND]     loses every N-th frame of KIND until heal
//   delay FROM TO MICROSECONDS      each frame arrives that much later
//   rate FROM TO MEGABITS           at most that many a second, the rest waits in the queue; 0: no bound
//   queue FROM TO BYTES             room for waiting frames, what does not fit is lost (16 MiB at first)
//   heal FROM TO                    as at the beginning, counters excepted
//   counts                          a JSON list, an object for each direction that has carried something
// clang-format on
//
// The process ends when standard input does, so that it does not outlive its parent.
#include <algorithm>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <deque>
#include <map>
#include <optional>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <unistd.h>

namespace {

using Clock = std::chrono::steady_clock;

constexpr size_t kFrameMax = 65536;
constexpr size_t kQueueBytes = size_t{16} << 20;
// Frames taken from one port before the others have their turn.
constexpr int kBurst = 64;
constexpr size_t kLineMax = 4096;

enum class Kind { kAny, kRoce, kTcp };

struct Drop {
  Kind kind = Kind::kRoce;
  uint64_t first = 1;   // number of the first frame that is lost
  uint64_t count = 1;   // how many, from there on
  uint64_t period = 0;  // not 0: every period-th, and first and count mean nothing
  uint64_t seen = 0;    // frames of the kind so far
};

struct Waiting {
  Clock::time_point due;
  std::string frame;
};

// One direction between two ports.
struct Link {
  bool cut = false;
  std::vector<Drop> drops;
  Clock::duration delay{};
  double seconds_per_byte = 0;
  size_t queue_max = kQueueBytes;

  std::deque<Waiting> queue;
  size_t queued = 0;       // bytes
  Clock::time_point idle;  // when the last frame will have left a paced link

  uint64_t frames = 0, bytes = 0, roce = 0;  // offered
  uint64_t dropped = 0, cut_off = 0, overrun = 0,
           gone = 0;  // lost: by command, cut, queue full, receiver gone
};

Kind KindOf(std::string_view frame) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(frame[i]); };
  if (frame.size() < 14 + 20 + 4) return Kind::kAny;
  const int type = byte(12) << 8 | byte(13);
  size_t header = 0;
  unsigned char protocol = 0;
  if (type == 0x0800) {
    header = 14 + size_t{4} * (byte(14) & 15U);
    protocol = byte(23);
  } else if (type == 0x86dd) {
    header = 14 + 40;
    protocol = byte(20);
  }
  if (protocol == 6) return Kind::kTcp;
  if (protocol != 17 || frame.size() < header + 4) return Kind::kAny;
  return (byte(header + 2) << 8 | byte(header + 3)) == 4791 ? Kind::kRoce : Kind::kAny;
}

// Whether a rule of the link wants this frame lost. Every rule counts every frame of its kind.
bool Dropped(Link& link, Kind kind) {
  bool lost = false;
  for (Drop& drop : link.drops) {
    if (drop.kind != Kind::kAny && drop.kind != kind) continue;
    ++drop.seen;
    lost |= drop.period != 0 ? drop.seen % drop.period == 0
                             : drop.seen >= drop.first && drop.seen - drop.first < drop.count;
  }
  return lost;
}

class Relay {
 public:
  explicit Relay(std::vector<int> ports)
      : ports_(std::move(ports)),
        links_(ports_.size() * ports_.size()) {}

  void Run();

 private:
  Link& At(size_t from, size_t to) { return links_[from * ports_.size() + to]; }
  void ReadPort(size_t from);
  void Offer(size_t from, size_t to, std::string_view frame, Clock::time_point now);
  bool Write(Link& link, size_t to, std::string_view frame);
  void SendDue(Clock::time_point now);
  bool ReadCommands();
  std::string Execute(const std::string& line);
  std::string Change(const std::vector<std::string>& words, Link& link);
  std::string Counts() const;

  std::vector<int> ports_;  // -1: closed
  std::vector<Link> links_;
  std::map<std::string, size_t, std::less<>> port_of_;  // by hardware address
  std::vector<bool> blocked_;                           // ports that take no more for now
  std::optional<Clock::time_point> next_due_;
  std::string commands_;
};

// False when the receiver has no room for the frame now.
bool Relay::Write(Link& link, size_t to, std::string_view frame) {
  if (ports_[to] < 0) {
    ++link.gone;
    return true;
  }
  if (write(ports_[to], frame.data(), frame.size()) >= 0) return true;
  if (errno == EAGAIN || errno == EINTR || errno == ENOBUFS) return false;
  ++link.gone;
  return true;
}

void Relay::Offer(size_t from, size_t to, std::string_view frame, Clock::time_point now) {
  Link& link = At(from, to);
  const Kind kind = KindOf(frame);
  ++link.frames;
  link.bytes += frame.size();
  link.roce += kind == Kind::kRoce ? 1 : 0;
  if (Dropped(link, kind)) {
    ++link.dropped;
    return;
  }
  if (link.cut) {
    ++link.cut_off;
    return;
  }
  const bool immediate = link.delay == Clock::duration{} && link.seconds_per_byte == 0;
  if (link.queue.empty() && immediate && Write(link, to, frame)) return;
  if (link.queued + frame.size() > link.queue_max) {
    ++link.overrun;
    return;
  }
  Clock::time_point leaves = now;
  if (link.seconds_per_byte > 0) {
    const auto time =
        std::chrono::duration<double>(link.seconds_per_byte * static_cast<double>(frame.size()));
    leaves = link.idle =
        std::max(now, link.idle) + std::chrono::duration_cast<Clock::duration>(time);
  }
  link.queue.push_back({leaves + link.delay, std::string(frame)});
  link.queued += frame.size();
}

void Relay::ReadPort(size_t from) {
  char buffer[kFrameMax];
  for (int i = 0; i < kBurst; ++i) {
    const ssize_t size = read(ports_[from], buffer, sizeof buffer);
    if (size < 0 && errno == EINTR) continue;
    if (size < 0 && errno == EAGAIN) return;
    if (size <= 0) {
      ports_[from] = -1;
      return;
    }
    const std::string_view frame(buffer, static_cast<size_t>(size));
    if (frame.size() < 14) continue;
    port_of_[std::string(frame.substr(6, 6))] = from;
    const auto known = port_of_.find(frame.substr(0, 6));
    const auto now = Clock::now();
    for (size_t to = 0; to < ports_.size(); ++to) {
      if (to != from && (known == port_of_.end() || known->second == to))
        Offer(from, to, frame, now);
    }
  }
}

// Sends what is due and learns when to look again.
void Relay::SendDue(Clock::time_point now) {
  blocked_.assign(ports_.size(), false);
  next_due_.reset();
  for (size_t i = 0; i < links_.size(); ++i) {
    Link& link = links_[i];
    const size_t to = i % ports_.size();
    while (!link.queue.empty()) {
      const Waiting& head = link.queue.front();
      if (head.due > now) {
        next_due_ = next_due_ ? std::min(*next_due_, head.due) : head.due;
        break;
      }
      if (!Write(link, to, head.frame)) {
        blocked_[to] = true;
        break;
      }
      link.queued -= head.frame.size();
      link.queue.pop_front();
    }
  }
}

std::optional<uint64_t> Number(const std::string& word) {
  uint64_t value = 0;
  const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), value);
  if (error != std::errc() || end != word.data() + word.size() || value > uint64_t{1} << 40)
    return {};
  return value;
}

std::optional<Kind> KindNamed(const std::string& word) {
  if (word == "roce") return Kind::kRoce;
  if (word == "tcp") return Kind::kTcp;
  if (word == "any") return Kind::kAny;
  return {};
}

// One command for one direction. Returns what is wrong with it; empty: nothing.
std::string Relay::Change(const std::vector<std::string>& words, Link& link) {
  const std::string& command = words[0];
  const bool drops = command == "drop" || command == "drop-every";
  Drop drop;
  size_t plain = words.size();
  if (drops && plain > 4) {
    if (const auto kind = KindNamed(words.back())) {
      drop.kind = *kind;
      --plain;
    }
  }
  const size_t numbers = command == "cut" || command == "heal" ? 0 : 1;
  if (plain < 3 + numbers || plain > 3 + numbers + (command == "drop" ? 1 : 0)) {
    return "wrong number of words";
  }
  uint64_t value[2] = {0, 1};
  for (size_t i = 3; i < plain; ++i) {
    const auto number = Number(words[i]);
    if (!number) return words[i] + " is not a number";
    value[i - 3] = *number;
  }
  if (command == "cut") {
    link.cut = true;
  } else if (command == "heal") {
    link.cut = false;
    link.drops.clear();
    link.delay = {};
    link.seconds_per_byte = 0;
    link.queue_max = kQueueBytes;
  } else if (command == "delay") {
    link.delay = std::chrono::microseconds(value[0]);
  } else if (command == "rate") {
    link.seconds_per_byte = value[0] == 0 ? 0 : 8e-6 / static_cast<double>(value[0]);
  } else if (command == "queue") {
    link.queue_max = value[0];
  } else if (drops) {
    if (value[0] == 0) return "the first frame is number 1";
    drop.first = value[0];
    drop.count = value[1];
    drop.period = command == "drop-every" ? value[0] : 0;
    link.drops.push_back(drop);
  } else {
    return "unknown command " + command;
  }
  return {};
}

std::string Relay::Counts() const {
  std::ostringstream out;
  out << "[";
  const char* separator = "";
  for (size_t i = 0; i < links_.size(); ++i) {
    const Link& link = links_[i];
    if (link.frames == 0) continue;
    out << separator << "{\"from\": " << i / ports_.size() << ", \"to\": " << i % ports_.size()
        << ", \"frames\": " << link.frames << ", \"bytes\": " << link.bytes
        << ", \"roce\": " << link.roce << ", \"dropped\": " << link.dropped
        << ", \"cut\": " << link.cut_off << ", \"overrun\": " << link.overrun
        << ", \"gone\": " << link.gone << "}";
    separator = ", ";
  }
  out << "]";
  return out.str();
}

std::string Relay::Execute(const std::string& line) {
  std::istringstream stream(line);
  std::vector<std::string> words;
  for (std::string word; stream >> word;)
    words.push_back(word);
  if (words.empty()) return "error: no command";
  if (words[0] == "counts") return Counts();
  if (words.size() < 3) return "error: " + words[0] + ": wrong number of words";
  std::optional<uint64_t> ends[2];
  for (int i = 0; i < 2; ++i) {
    const std::string& word = words[static_cast<size_t>(i) + 1];
    if (word == "*") continue;
    ends[i] = Number(word);
    if (!ends[i] || *ends[i] >= ports_.size()) return "error: there is no port " + word;
  }
  for (size_t from = 0; from < ports_.size(); ++from) {
    for (size_t to = 0; to < ports_.size(); ++to) {
      if (from == to || (ends[0] && *ends[0] != from) || (ends[1] && *ends[1] != to)) continue;
      const std::string problem = Change(words, At(from, to));
      if (!problem.empty()) return "error: " + words[0] + ": " + problem;
    }
  }
  return "ok";
}

// False at the end of standard input.
bool Relay::ReadCommands() {
  char buffer[kLineMax];
  const ssize_t size = read(STDIN_FILENO, buffer, sizeof buffer);
  if (size < 0) return errno == EINTR || errno == EAGAIN;
  if (size == 0) return false;
  commands_.append(buffer, static_cast<size_t>(size));
  for (size_t end = 0; (end = commands_.find('\n')) != std::string::npos;) {
    const std::string answer = Execute(commands_.substr(0, end));
    commands_.erase(0, end + 1);
    std::printf("%s\n", answer.c_str());
    std::fflush(stdout);
  }
  return commands_.size() < kLineMax;
}

void Relay::Run() {
  std::vector<pollfd> polled(ports_.size() + 1);
  while (true) {
    const auto now = Clock::now();
    SendDue(now);
    polled[0] = {STDIN_FILENO, POLLIN, 0};
    for (size_t i = 0; i < ports_.size(); ++i) {
      const int events = blocked_[i] ? POLLIN | POLLOUT : POLLIN;
      polled[i + 1] = {ports_[i], static_cast<short>(events), 0};
    }
    timespec timeout{};
    if (next_due_) {
      const auto wait =
          std::chrono::duration_cast<std::chrono::nanoseconds>(*next_due_ - now).count();
      timeout = {static_cast<time_t>(wait / 1'000'000'000),
                 static_cast<long>(wait % 1'000'000'000)};
    }
    if (ppoll(polled.data(), polled.size(), next_due_ ? &timeout : nullptr, nullptr) < 0 &&
        errno != EINTR)
      return;
    if (polled[0].revents != 0 && !ReadCommands()) return;
    for (size_t i = 0; i < ports_.size(); ++i) {
      if ((polled[i + 1].revents & POLLIN) != 0) {
        ReadPort(i);
      } else if ((polled[i + 1].revents & (POLLHUP | POLLERR | POLLNVAL)) != 0) {
        ports_[i] = -1;
      }
    }
  }
}

}  // namespace

int main(int argc, char** argv) {
  std::vector<int> ports;
  for (int i = 1; i < argc; ++i) {
    const auto number = Number(argv[i]);
    const int port = number ? static_cast<int>(*number) : -1;
    const int flags = fcntl(port, F_GETFL);
    if (flags < 0 || fcntl(port, F_SETFL, flags | O_NONBLOCK) < 0) {
      std::fprintf(stderr, "relay: %s is not an open descriptor: %s\n", argv[i],
                   std::strerror(errno));
      return 2;
    }
    ports.push_back(port);
  }
  signal(SIGPIPE, SIG_IGN);
  Relay(std::move(ports)).Run();
  return 0;
}
