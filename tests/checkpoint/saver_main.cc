/// \file
/// What storage_test.py, object_store_test.py and hostile_input_test.py run: a save as a process of
/// its own, and a check of what is there.
///
///   checkpoint_saver save ROOT STEP GENERATION  as at a job's start and at a save: cleans, saves,
///                                               commits, keeps three; prints "committed"
///   checkpoint_saver check ROOT                 cleans; prints the steps that are there, each
///                                               verified and compared with what its step saves
///
/// ROOT is a path or a URL. From step 1000 on the state is larger: 48 MB that compress little.
///   checkpoint_saver hash FILE                  prints the hash of a file, as a manifest has it
///   checkpoint_saver seal MANIFEST              gives an edited manifest its checksum
///
/// Exit codes: 0; 1 a save that failed, with one line on standard error; 3 a check that failed.
#include <cstdio>
#include <filesystem>

#include "base/hash.h"
#include "checkpoint/files/file_access.h"
#include "checkpoint/read/reader.h"
#include "checkpoint/read/verify.h"
#include "checkpoint/storage/storage.h"
#include "tests/checkpoint/support.h"

namespace heddle::checkpoint {
namespace {

constexpr int64_t kKept = 3;
constexpr int64_t kFileLimit = int64_t{1} << 30;
constexpr int64_t kFirstLargeStep = 1000;

State SavedState(int64_t step) {
  State state = StateOf(step);
  if (step >= kFirstLargeStep) {
    Random random(static_cast<uint64_t>(step));
    AddTensor(state, {"large", "master", DType::kF32, {3000, 4000}}, random);
  }
  return state;
}

Status SaveStep(const std::string& root, int64_t step, int64_t generation) {
  HEDDLE_RETURN_IF_ERROR(CleanOrphans(root).status());
  const State state = SavedState(step);
  Random random(static_cast<uint64_t>(step));
  const SaveSetup setup{
      .root = root, .step = step, .generation = generation, .workers = 2, .chunk_bytes = 32768};
  metrics::Registry metrics;
  HEDDLE_RETURN_IF_ERROR(
      Save(setup, state, RandomPieces(state, setup.workers, 4, random), metrics).status());
  std::puts("committed");
  return Prune(root, {.keep_last = kKept, .protected_steps = {}, .sound_step = step}).status();
}

/// That the checkpoint at `path` is sound and holds what a save of `step` saves.
Status CheckStep(const std::string& path, int64_t step) {
  HEDDLE_ASSIGN_OR_RETURN(const auto damage, Verify(path));
  if (!damage.empty()) {
    return DataLossError("{}: {}", path, ToString(damage.front()));
  }
  HEDDLE_ASSIGN_OR_RETURN(const auto reader, Reader::Open(path));
  const State state = SavedState(step);
  for (size_t t = 0; t < state.tensors.size(); ++t) {
    Bytes out(state.bytes[t].size());
    HEDDLE_RETURN_IF_ERROR(
        reader->Read(state.tensors[t].key(), WholeBox(state.tensors[t].shape), out));
    if (out != state.bytes[t]) {
      return DataLossError("{}: tensor '{}' is not what was saved", path, state.tensors[t].name);
    }
  }
  return Status::Ok();
}

/// That nothing else is there.
Status CheckNames(const std::string& root) {
  for (const auto& entry : std::filesystem::directory_iterator(root)) {
    const std::string name = entry.path().filename().string();
    if (!ParseStepFolderName(name) && name != ".lock" && !name.starts_with(".generation")) {
      return InternalError("{}: left behind", entry.path().string());
    }
  }
  return Status::Ok();
}

Status Check(const std::string& root) {
  HEDDLE_RETURN_IF_ERROR(CleanOrphans(root).status());
  if (!IsUrl(root)) {
    HEDDLE_RETURN_IF_ERROR(CheckNames(root));
  }
  HEDDLE_ASSIGN_OR_RETURN(const auto entries, List(root));
  for (const Entry& entry : entries) {
    HEDDLE_RETURN_IF_ERROR(CheckStep(entry.path, entry.step));
    std::printf("%lld\n", static_cast<long long>(entry.step));
  }
  return Status::Ok();
}

Status PrintHash(const std::string& path) {
  HEDDLE_ASSIGN_OR_RETURN(const auto file, OpenRegularFile(path));
  HEDDLE_ASSIGN_OR_RETURN(const std::string hash, HashFile(*file));
  std::puts(hash.c_str());
  return Status::Ok();
}

Status Seal(const std::string& path) {
  HEDDLE_ASSIGN_OR_RETURN(std::string text, ReadFile(path, kFileLimit));
  const size_t field = text.find(kChecksumField);
  if (field == std::string::npos || text.size() - field < kChecksumField.size() + kHexDigits) {
    return InvalidArgumentError("{}: has no checksum", path);
  }
  const size_t digits = field + kChecksumField.size();
  text.replace(digits, kHexDigits, kHexDigits, '0');
  text.replace(digits, kHexDigits, Hash128Hex(AsBytes(text)));
  return WriteFileAtomically(path, text);
}

int Run(const std::vector<std::string>& words) {
  Status status = InvalidArgumentError("usage: checkpoint_saver save|check|hash|seal …");
  if (words.size() == 4 && words[0] == "save") {
    status = SaveStep(words[1], std::atoll(words[2].c_str()), std::atoll(words[3].c_str()));
  } else if (words.size() == 2 && words[0] == "check") {
    status = Check(words[1]);
  } else if (words.size() == 2 && words[0] == "hash") {
    status = PrintHash(words[1]);
  } else if (words.size() == 2 && words[0] == "seal") {
    status = Seal(words[1]);
  }
  if (!status.ok()) {
    std::fprintf(stderr, "%s\n", status.ToString().c_str());
    return words.empty() || words[0] != "check" ? 1 : 3;
  }
  return 0;
}

}  // namespace
}  // namespace heddle::checkpoint

int main(int count, char** arguments) {
  return heddle::checkpoint::Run({arguments + 1, arguments + count});
}
