/// \file
/// The main of a fuzz target where libFuzzer is not: runs it on every file of its corpus, then on
/// random changes of them. That is no search, as libFuzzer's is; it is what every build can do.
///
/// Usage: TARGET CORPUS_FOLDER. HEDDLE_FUZZ_RUNS changed inputs; without it the tier says how many,
/// 20,000 in full. A run that crashes leaves its input in the working folder as crash-SEED.
#include <algorithm>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <string_view>
#include <vector>

#include <fcntl.h>
#include <unistd.h>

#include "base/random.h"
#include "tests/support/seed.h"
#include "tests/support/tier.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

namespace heddle::testing {
namespace {

constexpr size_t kMaxBytes = 64 << 10;
constexpr std::string_view kPieces[] = {"0",
                                        "-1",
                                        "9223372036854775807",
                                        "18446744073709551615",
                                        "1e999",
                                        "{",
                                        "}",
                                        "[",
                                        "]",
                                        "\"",
                                        ",",
                                        ":",
                                        "",
                                        "\\ud800",
                                        "null",
                                        "true",
                                        "../",
                                        "\xFF\xFF\xFF\xFF",
                                        "\x80",
                                        ".",
                                        "PK\5\6"};

std::string current;     // NOLINT: a handler of signals needs it.
std::string crash_file;  // NOLINT: the same.

void KeepInput(int signal) {
  const int fd = ::open(crash_file.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (fd >= 0 && ::write(fd, current.data(), current.size()) >= 0) {
    ::close(fd);
  }
  std::signal(signal, SIG_DFL);
  std::raise(signal);
}

void RunOne() {
  LLVMFuzzerTestOneInput(reinterpret_cast<const uint8_t*>(current.data()), current.size());
}

/// One change of `text`, at a random place.
void Change(std::string& text, const std::vector<std::string>& corpus, Random& random) {
  const size_t at = random.Below(text.size() + 1);
  const size_t length =
      std::min(random.Below(16) == 0 ? text.size() - at : random.Below(17), text.size() - at);
  switch (random.Below(7)) {
    case 0:
      if (at < text.size()) {
        text[at] =
            static_cast<char>(static_cast<unsigned char>(text[at]) ^ (1U << random.Below(8)));
      }
      break;
    case 1:
      text.insert(at, 1, static_cast<char>(random.Below(256)));
      break;
    case 2:
      text.erase(at, length);
      break;
    case 3:
      text.insert(at, text.substr(random.Below(text.size() + 1), 1 + random.Below(200)));
      break;
    case 4:
      text.replace(at, length, kPieces[random.Below(std::size(kPieces))]);
      break;
    case 5: {  // Digits as one number: lengths and offsets are what a parser trusts too easily.
      const size_t digit = text.find_first_of("0123456789", at);
      if (digit != std::string::npos) {
        const size_t end = text.find_first_not_of("0123456789", digit);
        text.replace(digit, end - digit, std::to_string(random.Next() >> random.Below(64)));
      }
      break;
    }
    default: {
      const std::string& other = corpus[random.Below(corpus.size())];
      text = text.substr(0, at) + other.substr(random.Below(other.size() + 1));
    }
  }
  text.resize(std::min(text.size(), kMaxBytes));
}

int Replay(const std::string& folder) {
  std::vector<std::string> corpus;
  std::vector<std::filesystem::path> paths;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    paths.push_back(entry.path());
  }
  std::sort(paths.begin(), paths.end());
  for (const auto& path : paths) {
    std::ifstream file(path, std::ios::binary);
    corpus.emplace_back(std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>());
  }
  if (corpus.empty()) {
    std::fprintf(stderr, "%s: no corpus\n", folder.c_str());
    return 1;
  }
  const uint64_t seed = TestSeed();
  crash_file = "crash-" + std::to_string(seed);
  for (const int signal : {SIGSEGV, SIGABRT, SIGBUS, SIGFPE}) {
    std::signal(signal, KeepInput);
  }
  for (const std::string& input : corpus) {
    current = input;
    RunOne();
  }
  const char* given = std::getenv("HEDDLE_FUZZ_RUNS");  // NOLINT(concurrency-mt-unsafe)
  const int64_t runs =
      given != nullptr ? std::strtoll(given, nullptr, 10) : Scaled<int64_t>(2'000, 5'000, 20'000);
  Random random(seed);
  for (int64_t run = 0; run < runs; ++run) {
    current = corpus[random.Below(corpus.size())];
    current.resize(std::min(current.size(), kMaxBytes));
    for (uint64_t changes = 1 + random.Below(6); changes > 0; --changes) {
      Change(current, corpus, random);
    }
    RunOne();
  }
  std::printf("%zu files and %lld changed inputs\n", corpus.size(), static_cast<long long>(runs));
  return 0;
}

}  // namespace
}  // namespace heddle::testing

int main(int count, char** arguments) {
  if (count != 2) {
    std::fprintf(stderr, "usage: %s CORPUS_FOLDER\n", arguments[0]);
    return 2;
  }
  return heddle::testing::Replay(arguments[1]);
}
