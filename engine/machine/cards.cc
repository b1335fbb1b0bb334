#include "engine/machine/cards.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <optional>
#include <sstream>
#include <string_view>

#include <fmt/format.h>

#include "base/log.h"
#include "base/system/file.h"
#include "engine/machine/ask_program.h"

namespace heddle::machine {
namespace {

// How long NVML may take. Without the daemon that keeps cards awake it takes seconds a card.
constexpr int kSeconds = 30;
constexpr int kMostSeconds = 3600;

Duration LimitOf(const CardSources& sources) {
  if (sources.limit != Duration::zero()) {
    return sources.limit;
  }
  constexpr const char* kVariable = "HEDDLE_NVML_TIMEOUT";
  const char* const given = std::getenv(kVariable);  // NOLINT(concurrency-mt-unsafe): as it began
  if (given == nullptr) {
    return std::chrono::seconds(kSeconds);
  }
  const std::string_view text(given);
  int seconds = 0;
  const auto parsed = std::from_chars(text.begin(), text.end(), seconds);
  if (parsed.ec != std::errc() || parsed.ptr != text.end() || seconds < 1 ||
      seconds > kMostSeconds) {
    LogWarning("{}: expected 1 to {} seconds, got '{}': {} are taken", kVariable, kMostSeconds,
               text, kSeconds);
    seconds = kSeconds;
  }
  return std::chrono::seconds(seconds);
}

// The program that asks NVML: beside this one, or, for programs elsewhere, where it was built.
std::string AskingProgram() {
  std::error_code unknown;
  const auto self = std::filesystem::read_symlink("/proc/self/exe", unknown);
  const std::string beside = (self.parent_path() / "heddle-cards").string();
  return FileExists(beside) ? beside : HEDDLE_CARDS_PROGRAM;
}

// Nothing: it is no number from 0 on.
std::optional<int64_t> NumberIn(std::string_view text) {
  int64_t number = 0;
  const auto parsed = std::from_chars(text.begin(), text.end(), number);
  const bool is_whole = parsed.ec == std::errc() && parsed.ptr == text.end() && number >= 0;
  return is_whole ? std::optional(number) : std::nullopt;
}

std::vector<std::string> WordsOf(std::string_view line) {
  std::vector<std::string> words(1);
  for (const char c : line) {
    if (c == '\t') {
      words.emplace_back();
    } else {
      words.back() += c;
    }
  }
  return words;
}

// What NVML told.
struct Told {
  bool none = false;  ///< There is no NVML.
  bool whole = false;
  std::optional<int64_t> count;
  Cards cards;
};

// More cards than a machine has.
constexpr int64_t kMostCards = 4096;
constexpr size_t kMostShown = 60;  // Bytes of a line.

bool ReadCard(const std::vector<std::string>& words, Told& told) {
  const auto memory = NumberIn(words[2]);
  const auto free = NumberIn(words[3]);
  if (!memory || !free || std::ssize(told.cards.list) >= told.count.value_or(0)) {
    return false;
  }
  told.cards.list.push_back({.name = words[1],
                             .memory_bytes = *memory,
                             .free_bytes = *free,
                             .fault = words[6],
                             .bus_id = words[4],
                             .uuid = words[5]});
  return true;
}

bool ReadPart(const std::vector<std::string>& words, Told& told) {
  const auto memory = NumberIn(words[2]);
  const auto free = NumberIn(words[3]);
  if (!memory || !free || told.cards.list.empty()) {
    return false;
  }
  told.cards.list.back().slices.push_back(
      {.name = words[1], .memory_bytes = *memory, .free_bytes = *free, .uuid = words[4]});
  return true;
}

bool ReadPeers(const std::vector<std::string>& words, Told& told) {
  const auto card = NumberIn(words[1]);
  const auto rate = NumberIn(words[2]);
  if (!card || !rate || *card >= std::ssize(told.cards.list)) {
    return false;
  }
  told.cards.list[static_cast<size_t>(*card)].peer_bytes_per_second = *rate;
  return true;
}

bool ReadDmaBuf(const std::vector<std::string>& words, Told& told) {
  const auto card = NumberIn(words[1]);
  if (!card || *card >= std::ssize(told.cards.list)) {
    return false;
  }
  told.cards.list[static_cast<size_t>(*card)].no_dma_buf = words[2];
  return true;
}

// False: the line is not one of heddle-cards (engine/machine/main).
bool ReadLine(const std::vector<std::string>& words, Told& told) {
  const std::string& kind = words[0];
  if (kind == "none" && words.size() == 1) {
    told.none = true;
  } else if (kind == "fault" && words.size() == 2) {
    told.cards.fault = words[1];
  } else if (kind == "driver" && words.size() == 2) {
    told.cards.driver = words[1];
  } else if (kind == "count" && words.size() == 2) {
    told.count = NumberIn(words[1]);
    return told.count.value_or(kMostCards + 1) <= kMostCards;
  } else if (kind == "card" && words.size() == 7) {
    return ReadCard(words, told);
  } else if (kind == "part" && words.size() == 5) {
    return ReadPart(words, told);
  } else if (kind == "peers" && words.size() == 3) {
    return ReadPeers(words, told);
  } else if (kind == "dma_buf" && words.size() == 3) {
    return ReadDmaBuf(words, told);
  } else {
    told.whole = kind == "end" && words.size() == 1 && std::ssize(told.cards.list) == told.count;
    return told.whole;
  }
  return true;
}

// `whole`: so is the last line.
Told ReadTold(const std::string& text, bool whole) {
  Told told;
  std::istringstream lines(text);
  for (std::string line; told.cards.fault.empty() && std::getline(lines, line);) {
    if (lines.eof() && !whole) {
      break;
    }
    const std::vector<std::string> words = WordsOf(line);
    if (!ReadLine(words, told)) {
      told.cards.fault = fmt::format(
          "heddle-cards, which asks it, wrote '{}', which is not understood: it has to come from "
          "the same build as this program",
          line.substr(0, kMostShown));
    }
    told.whole = told.whole || told.none || !told.cards.fault.empty();
  }
  return told;
}

// Notes that NVML told no more, and why: at the card that it was asked for, or for all.
void NoteUntold(const std::string& why, Told& told) {
  std::vector<Card>& list = told.cards.list;
  const size_t at = list.size();
  const auto count = static_cast<size_t>(told.count.value_or(0));
  if (at >= count) {
    told.cards.fault = why;
    return;
  }
  list.resize(count);
  for (size_t i = at; i < list.size(); ++i) {
    list[i].fault = i == at ? "it does not answer: " + why
                            : fmt::format("it was not asked, for cuda:{} does not answer", at);
  }
}

Told AskNvml(const CardSources& sources) {
  const Duration limit = LimitOf(sources);
  std::vector<std::string> command = {sources.program.empty() ? AskingProgram() : sources.program,
                                      sources.nvml};
  if (!sources.cuda.empty()) {
    command.push_back(sources.cuda);
  }
  const Result<ProgramAnswer> answer = AskProgram(command, limit);
  Told told;
  if (!answer.ok()) {
    told.cards.fault = fmt::format("heddle-cards, which asks it and belongs beside heddle: {}",
                                   answer.status().message());
    return told;
  }
  told = ReadTold(answer->output, answer->end == "exit code 0");
  for (Card& card : told.cards.list) {
    if (!sources.cuda.empty() && card.no_dma_buf == Card().no_dma_buf) {
      card.no_dma_buf = "CUDA did not answer";
    }
  }
  if (!told.whole) {
    NoteUntold(
        answer->timed_out
            ? fmt::format("nothing came from {} within {} s; see whether `nvidia-smi` "
                          "answers, and the kernel's log (dmesg)",
                          sources.nvml, Seconds(limit))
            : fmt::format("{} ended the program that asked it ({})", sources.nvml, answer->end),
        told);
  }
  return told;
}

// The version in "NVRM version: NVIDIA UNIX x86_64 Kernel Module  580.65.06  Sun Jul …".
std::string DriverVersion(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  std::istringstream words(line);
  for (std::string word; words >> word;) {
    if (std::isdigit(static_cast<unsigned char>(word.front())) != 0 &&
        word.find('.') != std::string::npos) {
      return word;
    }
  }
  return "";
}

// What follows "Model:" in a card's file of facts.
std::string ModelIn(const std::filesystem::path& path) {
  constexpr std::string_view kKey = "Model:";
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with(kKey)) {
      line.erase(0, kKey.size());
      line.erase(0, std::min(line.find_first_not_of(" \t"), line.size()));
      return line;
    }
  }
  return "";
}

void ReadKernelModule(const std::string& folder, Cards& cards) {
  cards.driver = DriverVersion(folder + "/version");
  std::vector<std::filesystem::path> places;  // Named by their place on the bus.
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator(folder + "/gpus", ignored)) {
    places.push_back(entry.path());
  }
  std::ranges::sort(places);
  for (const std::filesystem::path& place : places) {
    cards.list.push_back(
        {.name = ModelIn(place / "information"), .fault = {}, .bus_id = place.filename().string()});
  }
}

}  // namespace

Cards FindCards(const CardSources& sources) {
  Told told = AskNvml(sources);
  if (told.none || !told.cards.fault.empty()) {
    told.cards.list.clear();
    ReadKernelModule(sources.proc, told.cards);
  }
  return told.cards;
}

}  // namespace heddle::machine
