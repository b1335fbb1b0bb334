/// \file
/// What the programs of the tasks allreduce and p2p have in common: the options, the inputs, the
/// check of the answers and the clock. A library is a class with
///
///     void AllReduce(float* data, size_t count);        in place, sum
///     double Max(double value);                         over all ranks
///     void Exchange(std::byte* data, size_t bytes);     rank 0 sends to 1, which sends it back
///     float* Allocate(size_t bytes);                    zeros; lives as long as the library
///
/// Each rank is a process. Output of rank 0, a line a size:
///     {"bytes": N, "digest": "hex", "seconds": [one value a batch]}
/// A batch is a number of calls back to back, the same for all ranks; its value is the time of one
/// call at the slowest rank. The digest is of the answer to the inputs below.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

namespace exchange {

struct Options {
  std::string task = "allreduce";
  int rank = 0;
  int ranks = 2;
  std::vector<size_t> bytes;
  int batches = 5;
  double batch_seconds = 0.02;
  std::string memory = "private";  ///< Ours: private or shared.
  std::string transport = "shm";   ///< Ours: shm, tcp or tls.
  std::string folder;              ///< Gloo's meeting place.
};

[[noreturn]] inline void Fail(const std::string& message) {
  std::fprintf(stderr, "%s\n", message.c_str());
  std::exit(1);
}

inline Options Parse(int argc, char** argv) {
  Options options;
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string key = argv[i];
    const char* value = argv[i + 1];
    if (key == "--task") {
      options.task = value;
    } else if (key == "--rank") {
      options.rank = std::atoi(value);
    } else if (key == "--ranks") {
      options.ranks = std::atoi(value);
    } else if (key == "--bytes") {
      options.bytes.push_back(std::strtoull(value, nullptr, 10));
    } else if (key == "--batches") {
      options.batches = std::atoi(value);
    } else if (key == "--batch-seconds") {
      options.batch_seconds = std::atof(value);
    } else if (key == "--memory") {
      options.memory = value;
    } else if (key == "--transport") {
      options.transport = value;
    } else if (key == "--folder") {
      options.folder = value;
    } else {
      Fail("unknown option " + key);
    }
  }
  return options;
}

inline double Now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

/// Small integers, so that every order of additions gives the same sum.
inline float Input(int rank, size_t i) {
  return static_cast<float>((i * 7 + static_cast<size_t>(rank) * 13) % 31) - 15.0F;
}

inline uint64_t Digest(const void* data, size_t bytes) {
  uint64_t digest = 0xCBF29CE484222325U;
  const auto* at = static_cast<const unsigned char*>(data);
  for (size_t i = 0; i < bytes; ++i) {
    digest = (digest ^ at[i]) * 0x100000001B3U;
  }
  return digest;
}

template <typename Library>
void AllReduceOnce(Library& library, const Options& options, float* data, size_t count) {
  for (size_t i = 0; i < count; ++i) {
    data[i] = Input(options.rank, i);
  }
  library.AllReduce(data, count);
  for (size_t i = 0; i < count; ++i) {
    float expected = 0;
    for (int rank = 0; rank < options.ranks; ++rank) {
      expected += Input(rank, i);
    }
    if (data[i] != expected) {
      Fail("rank " + std::to_string(options.rank) + ": element " + std::to_string(i) + " is " +
           std::to_string(data[i]) + " instead of " + std::to_string(expected));
    }
  }
}

template <typename Library>
void ExchangeOnce(Library& library, const Options& options, float* data, size_t count) {
  for (size_t i = 0; i < count; ++i) {
    data[i] = options.rank == 0 ? Input(0, i) : 0.0F;
  }
  library.Exchange(reinterpret_cast<std::byte*>(data), count * sizeof(float));
  for (size_t i = 0; i < count; ++i) {
    if (data[i] != Input(0, i)) {
      Fail("rank " + std::to_string(options.rank) + ": wrong bytes");
    }
  }
}

template <typename Library>
void RunSize(Library& library, const Options& options, float* data, size_t bytes) {
  const size_t count = bytes / sizeof(float);
  const bool reduces = options.task == "allreduce";
  if (reduces) {
    AllReduceOnce(library, options, data, count);
  } else {
    ExchangeOnce(library, options, data, count);
  }
  const uint64_t digest = Digest(data, bytes);
  std::memset(data, 0, bytes);  // Zeros stay zeros, however often they are added.
  const auto batch = [&](int calls) {
    library.Max(0);  // All begin together.
    const double began = Now();
    for (int i = 0; i < calls; ++i) {
      if (reduces) {
        library.AllReduce(data, count);
      } else {
        library.Exchange(reinterpret_cast<std::byte*>(data), bytes);
      }
    }
    return library.Max((Now() - began) / calls);
  };
  // As many calls as fill a batch; the first ones also warm up.
  batch(2);
  int calls = 2;
  for (double took = 0; took < options.batch_seconds / 4 && calls < 100000;) {
    took = batch(calls) * calls;
    calls = took < options.batch_seconds / 4 ? calls * 4 : calls;
  }
  calls = std::max(1, static_cast<int>(options.batch_seconds / batch(calls)));
  calls = static_cast<int>(library.Max(calls));
  std::string seconds;
  for (int i = 0; i < options.batches; ++i) {
    char text[32];
    // There and back are two messages.
    std::snprintf(text, sizeof(text), "%s%.9g", i == 0 ? "" : ", ",
                  batch(calls) / (reduces ? 1 : 2));
    seconds += text;
  }
  if (options.rank == 0) {
    std::printf("{\"bytes\": %zu, \"digest\": \"%016llx\", \"seconds\": [%s]}\n", bytes,
                static_cast<unsigned long long>(digest), seconds.c_str());
    std::fflush(stdout);
  }
}

template <typename Library>
void RunAll(Library& library, const Options& options) {
  const size_t most = *std::max_element(options.bytes.begin(), options.bytes.end());
  float* const data = library.Allocate(most);
  for (const size_t bytes : options.bytes) {
    RunSize(library, options, data, bytes);
  }
}

}  // namespace exchange
