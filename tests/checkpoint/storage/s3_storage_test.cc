/// \file
/// A job's checkpoints in an object store: what lies there after each operation, who may commit,
/// and what is cleaned.
#include <atomic>
#include <cstring>

#include <gmock/gmock.h>

#include "checkpoint/convert/initial_state.h"
#include "checkpoint/files/file_access.h"
#include "checkpoint/read/verify.h"
#include "checkpoint/storage/manifest_file.h"
#include "checkpoint/storage/storage.h"
#include "checkpoint/store/import.h"
#include "tests/checkpoint/storage/s3_storage_fixture.h"

namespace heddle::checkpoint {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::ObjectStore;

TEST_F(S3StorageTest, ACommittedCheckpointIsItsFilesAndTheManifest) {
  const auto saved = SaveStep(40, 2, 2);
  ASSERT_TRUE(saved.ok()) << saved.status().ToString();
  EXPECT_EQ(saved->path, root_ + "/step-00000040");
  EXPECT_THAT(Keys(),
              ElementsAre("jobs/a/.generation", "jobs/a/step-00000040/MANIFEST.json",
                          "jobs/a/step-00000040/w0.g2.h5", "jobs/a/step-00000040/w1.g2.h5"));
  EXPECT_EQ(Store().Objects().at(Path(".generation")), "2\n");
  size_t bytes = 0;
  for (const auto& [path, content] : Store().Objects()) {
    bytes += path.starts_with(bucket_) && !path.ends_with(".generation") ? content.size() : 0;
  }
  EXPECT_EQ(saved->bytes, static_cast<int64_t>(bytes));
  const auto reader = Reader::Open(saved->path);
  ASSERT_TRUE(reader.ok()) << reader.status().ToString();
  Random random(6);
  ExpectReads(**reader, state_, RandomPieces(state_, 1, 3, random), 2);
  const auto entries = List(root_);
  ASSERT_TRUE(entries.ok());
  ASSERT_EQ(entries->size(), 1U);
  EXPECT_EQ(entries->front().step, 40);
  const auto damage = Verify(saved->path);
  ASSERT_TRUE(damage.ok());
  EXPECT_THAT(*damage, IsEmpty());
}

TEST_F(S3StorageTest, AFolderWithoutAManifestIsNoCheckpoint) {
  ASSERT_TRUE(SaveStep(10, 1).ok());
  Set("step-00000020/w0.g1.h5");
  Set("step-x/MANIFEST.json");
  Set("mine/MANIFEST.json");
  EXPECT_THAT(*Open()->Steps(), ElementsAre(10));
}

TEST_F(S3StorageTest, WhatArrivesOtherwiseIsNotKept) {
  const std::string file = Path("step-00000040/w0.g1.h5");
  for (const bool shorter : {true, false}) {
    Store().SetInterference([&](const auto& request, auto& /*response*/) {
      if (request.method == "HEAD" && request.path == "/" + file) {
        std::string content = Store().Objects().at(file);
        shorter ? content.pop_back() : static_cast<void>(content.back() ^= 1);
        Store().Set(file, content);
      }
      return false;
    });
    const auto saved = SaveStep(40, 1);
    EXPECT_EQ(saved.status().code(), StatusCode::kDataLoss);
    EXPECT_THAT(saved.status().message(),
                HasSubstr(shorter ? "bytes arrived of" : "other bytes arrived than were sent"));
    EXPECT_THAT(Keys(), IsEmpty());
  }
}

TEST_F(S3StorageTest, AnOldGenerationCommitsNothing) {
  ASSERT_TRUE(SaveStep(10, 3).ok());
  const auto before = Store().Objects();
  const auto old = SaveStep(10, 2);
  EXPECT_EQ(old.status().code(), StatusCode::kAborted);
  EXPECT_THAT(old.status().message(),
              HasSubstr("generation 2 is over: 3 is known at " + root_ + "/"));
  EXPECT_EQ(Store().Objects().at(Path("step-00000010/MANIFEST.json")),
            before.at(Path("step-00000010/MANIFEST.json")));
  EXPECT_EQ(Open()->Fence(2).code(), StatusCode::kAborted);
  EXPECT_TRUE(Open()->Fence(3).ok());
  EXPECT_TRUE(Open()->Fence(5).ok());
  EXPECT_EQ(Store().Objects().at(Path(".generation")), "5\n");
  ASSERT_TRUE(SaveStep(10, 5).ok()) << "a newer one replaces";
  EXPECT_EQ(LoadManifest(root_ + "/step-00000010")->generation, 5);
  Set(".generation", "many");
  EXPECT_EQ(Open()->Fence(9).message(), root_ + "/.generation: not a number");
}

TEST_F(S3StorageTest, TheHighestGenerationIsThatOfAnythingThere) {
  EXPECT_EQ(*HighestGeneration(root_), -1);
  ASSERT_TRUE(SaveStep(10, 3).ok());
  EXPECT_EQ(*HighestGeneration(root_), 3);
  ASSERT_TRUE(Fence(root_, 5).ok());
  EXPECT_EQ(*HighestGeneration(root_), 5);
  Set("step-00000020/w0.g8.h5");
  EXPECT_EQ(*HighestGeneration(root_), 8);
}

TEST_F(S3StorageTest, AStoreThatIgnoresConditionsIsRefused) {
  ASSERT_TRUE(Open()->Fence(3).ok());
  Store().SetInterference([](const auto& request, auto& response) {
    if (request.method != "PUT" || !request.has_header("If-None-Match")) {
      return false;
    }
    response.set_header("ETag", "\"any\"");
    response.status = 200;
    return true;
  });
  const Status status = Open()->Fence(3);
  EXPECT_EQ(status.code(), StatusCode::kUnimplemented);
  EXPECT_THAT(status.message(),
              HasSubstr(".generation: the store does not know conditional writes"));
  Store().SetInterference([](const auto& request, auto& response) {
    if (request.method != "PUT") {
      return false;
    }
    ObjectStore::Answer(response, 501, "NotImplemented");
    return true;
  });
  EXPECT_EQ(Open()->Fence(3).code(), StatusCode::kUnimplemented);
}

TEST_F(S3StorageTest, AStoreThatSaysNoIsAskedOnce) {
  ASSERT_TRUE(SaveStep(10, 1).ok());
  const auto storage = Open();
  for (const char* const method : {"PUT", "GET", "HEAD"}) {
    std::atomic<int> asked = 0;
    Store().SetInterference([&](const auto& request, auto& response) {
      if (request.method != method) {
        return false;
      }
      ++asked;
      ObjectStore::Answer(response, 403, "AccessDenied");
      return true;
    });
    if (std::string(method) == "HEAD") {
      EXPECT_EQ(storage->Steps().status().code(), StatusCode::kUnauthenticated);
    } else {
      EXPECT_EQ(storage->Fence(2).code(), StatusCode::kUnauthenticated);
      EXPECT_EQ(asked.exchange(0), 1) << method;
      EXPECT_EQ(storage->ChangeManifest(10, [](Manifest&) { return Status::Ok(); }).code(),
                StatusCode::kUnauthenticated);
    }
    EXPECT_EQ(asked, 1) << method;
  }
  Store().SetInterference(nullptr);
  EXPECT_EQ(Store().Objects().at(Path(".generation")), "1\n");
}

TEST_F(S3StorageTest, WhatWasKeptIsGoneFromTheFolderItWasWrittenIn) {
  const auto storage = Open();
  ASSERT_TRUE(storage->Prepare().ok());
  const std::string folder = storage->SaveFolder(10, 1);
  EXPECT_TRUE(folder.ends_with("/.tmp-step-00000010.g1")) << folder;
  ASSERT_TRUE(MakeFolders(folder).ok());
  ASSERT_TRUE(WriteFileAtomically(folder + "/w0.g1.h5", "content").ok());
  const auto facts = DescribeFile(folder, "w0.g1.h5");
  ASSERT_TRUE(facts.ok());
  ASSERT_TRUE(storage->Persist(10, 1, *facts, {}).ok());
  EXPECT_FALSE(FileExists(folder + "/w0.g1.h5"));
  EXPECT_EQ(Store().Objects().at(Path("step-00000010/w0.g1.h5")), "content");
}

TEST_F(S3StorageTest, WhoIsAlwaysLateGivesUp) {
  int puts = 0;
  Store().SetInterference([&](const auto& request, auto& response) {
    if (request.method != "PUT") {
      return false;
    }
    ++puts;
    ObjectStore::Answer(response, 412, "PreconditionFailed");
    return true;
  });
  const Status fence = Open()->Fence(1);
  EXPECT_EQ(fence.code(), StatusCode::kUnavailable);
  EXPECT_EQ(fence.message(), root_ + "/.generation: others write it all the time");
  EXPECT_EQ(puts, 10);
  Store().SetInterference(nullptr);
  ASSERT_TRUE(SaveStep(10, 1).ok());
  puts = 0;
  Store().SetInterference([&](const auto& request, auto& response) {
    if (request.method != "PUT" || request.path.find("MANIFEST") == std::string::npos) {
      return false;
    }
    ++puts;
    ObjectStore::Answer(response, 412, "PreconditionFailed");
    return true;
  });
  const Status change = Open()->ChangeManifest(10, [](Manifest&) { return Status::Ok(); });
  EXPECT_EQ(change.message(), root_ + "/step-00000010/MANIFEST.json: others write it all the time");
  EXPECT_EQ(puts, 10);
  puts = 0;
  const auto commit = SaveStep(10, 2);
  EXPECT_EQ(commit.status().code(), StatusCode::kUnavailable);
  EXPECT_EQ(puts, 10);
}

TEST_F(S3StorageTest, ACommitWhoseAnswerWasLostHasHappened) {
  bool lost = false;
  Store().SetInterference([&](const auto& request, auto& response) {
    if (lost || request.method != "PUT" || request.path.find("MANIFEST") == std::string::npos) {
      return false;
    }
    lost = true;
    Store().Set(request.path.substr(1), request.body);
    ObjectStore::Answer(response, 412, "PreconditionFailed");  // As a second attempt gets it.
    return true;
  });
  const auto saved = SaveStep(10, 1);
  ASSERT_TRUE(saved.ok()) << saved.status().ToString();
  EXPECT_TRUE(lost);
  EXPECT_TRUE(Reader::Open(saved->path).ok());
}

TEST_F(S3StorageTest, AReportedFileThatIsMissingOrOtherStopsTheCommit) {
  Random random(5);
  const SaveSetup setup{.root = root_, .step = 10};
  auto parts = WriteParts(setup, state_, RandomPieces(state_, 1, 1, random), metrics_);
  ASSERT_TRUE(parts.ok()) << parts.status().ToString();
  const CommitRequest request{.root = root_,
                              .step = 10,
                              .generation = 1,
                              .job = TestJob(),
                              .expected = state_.tensors,
                              .parts = *parts};
  const std::string file = Path("step-00000010/w0.g1.h5");
  const std::string content = Store().Objects().at(file);
  Store().Set(file, content + "x");
  const auto longer = Commit(request, metrics_);
  EXPECT_EQ(longer.status().code(), StatusCode::kDataLoss);
  EXPECT_THAT(longer.status().message(),
              HasSubstr(fmt::format("{} bytes, {} reported", content.size() + 1, content.size())));
  Store().Erase(file);
  EXPECT_THAT(Commit(request, metrics_).status().message(), HasSubstr("w0.g1.h5: it is missing"));
  Store().SetInterference([](const auto& asked, auto& response) {
    if (asked.path.find(".h5") == std::string::npos) {
      return false;
    }
    ObjectStore::Answer(response, 403, "AccessDenied");
    return true;
  });
  EXPECT_EQ(Commit(request, metrics_).status().code(), StatusCode::kUnauthenticated);
  Store().SetInterference(nullptr);
  Store().Set(file, content);
  EXPECT_TRUE(Commit(request, metrics_).ok());
}

TEST_F(S3StorageTest, AManifestIsChangedAsItIsFound) {
  ASSERT_TRUE(SaveStep(10, 1).ok());
  const std::string path = root_ + "/step-00000010";
  int looks = 0;
  const Status changed = Open()->ChangeManifest(10, [&](Manifest& manifest) {
    if (++looks == 1) {  // Another process is quicker.
      Manifest other = manifest;
      other.job.extra = "other";
      Set("step-00000010/MANIFEST.json", EncodeManifest(other));
    }
    manifest.job.extra += "+mine";
    return Status::Ok();
  });
  ASSERT_TRUE(changed.ok()) << changed.ToString();
  EXPECT_EQ(looks, 2);
  EXPECT_EQ(LoadManifest(path)->job.extra, "other+mine");
  const Status refused = Open()->ChangeManifest(10, [](Manifest& manifest) {
    manifest.job.extra = "refused";
    return InvalidArgumentError("not this one");
  });
  EXPECT_EQ(refused.message(), path + "/MANIFEST.json: not this one");
  EXPECT_EQ(LoadManifest(path)->job.extra, "other+mine");
  EXPECT_EQ(Open()->ChangeManifest(11, [](Manifest&) { return Status::Ok(); }).message(),
            root_ + "/step-00000011/MANIFEST.json: no such checkpoint");
  Set("step-00000010/MANIFEST.json", "{}");
  EXPECT_EQ(Open()->ChangeManifest(10, [](Manifest&) { return Status::Ok(); }).code(),
            StatusCode::kDataLoss);
}

TEST_F(S3StorageTest, WhatCannotBeAskedForIsNotPassedOver) {
  ASSERT_TRUE(SaveStep(10, 1).ok());
  ASSERT_TRUE(SaveStep(20, 1).ok());
  const auto never = [](const std::string& line) { ADD_FAILURE() << line; };
  EXPECT_EQ(FindNewestSound(root_, never)->step, 20);
  Store().SetInterference([](const auto& request, auto& response) {
    if (request.path.find("step-00000020/w0") == std::string::npos) {
      return false;
    }
    ObjectStore::Answer(response, 403, "AccessDenied");
    return true;
  });
  EXPECT_EQ(FindNewestSound(root_, never).status().code(), StatusCode::kUnauthenticated);
  Store().SetInterference([](const auto& request, auto& response) {
    if (request.path.find("MANIFEST") == std::string::npos || request.method != "GET") {
      return false;
    }
    ObjectStore::Answer(response, 503, "SlowDown");
    return true;
  });
  EXPECT_EQ(LoadManifest(root_ + "/step-00000010").status().code(), StatusCode::kUnavailable);
}

TEST_F(S3StorageTest, CheckpointsComeFromAndGoToTheStore) {
  ASSERT_TRUE(SaveStep(30, 4, 2).ok());
  const TemporaryFolder folder;
  const std::string local = folder.path() + "/job";
  const auto fetched = Import(root_ + "/step-00000030", local, state_.tensors);
  ASSERT_TRUE(fetched.ok()) << fetched.status().ToString();
  EXPECT_EQ(*fetched, 30);
  Random random(8);
  const std::string other = fmt::format("s3://{}/other", bucket_);
  const auto brought = Import(local + "/" + StepFolderName(30), other, state_.tensors);
  ASSERT_TRUE(brought.ok()) << brought.status().ToString();
  for (const std::string& root : {local, other}) {
    const auto reader = Reader::Open(root + "/" + StepFolderName(30));
    ASSERT_TRUE(reader.ok()) << reader.status().ToString();
    ExpectReads(**reader, state_, RandomPieces(state_, 1, 3, random), 1);
  }
  EXPECT_EQ(LoadManifest(other + "/" + StepFolderName(30))->generation, 0)
      << "what this job saves replaces it";
}

TEST_F(S3StorageTest, AFirstStateFromWeightsIsWrittenIntoTheStore) {
  const TemporaryFolder folder;
  const std::string header = R"({"w":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})";
  const uint64_t length = header.size();
  const std::string weights =
      std::string(reinterpret_cast<const char*>(&length), sizeof(length)) + header + "12345678";
  ASSERT_TRUE(WriteFileAtomically(folder.path() + "/weights", weights).ok());
  const std::vector<TensorInfo> expected = {{"w", "exp_avg", DType::kF32, {2}},
                                            {"w", "master", DType::kF32, {2}}};
  const Status written = WriteInitialState(folder.path() + "/weights", root_, {}, expected);
  ASSERT_TRUE(written.ok()) << written.ToString();
  EXPECT_THAT(*Open()->Steps(), ElementsAre(0));
  const auto reader = Reader::Open(root_ + "/" + StepFolderName(0));
  ASSERT_TRUE(reader.ok()) << reader.status().ToString();
  Bytes out(8);
  ASSERT_TRUE((*reader)->Read({"w", "master"}, WholeBox({2}), out).ok());
  EXPECT_EQ(std::memcmp(out.data(), "12345678", 8), 0);
  EXPECT_FALSE(FileExists("s3:")) << "it is no path";
}

TEST_F(S3StorageTest, AFileOfSeveralPiecesComesWhole) {
  Random random(12);
  state_ = {};
  state_.tensors.push_back({"w", "master", DType::kU8, {9 << 20}});
  state_.bytes.emplace_back(9 << 20);
  for (std::byte& byte : state_.bytes[0]) {  // Nothing that a codec makes smaller.
    byte = static_cast<std::byte>(random.Below(256));
  }
  ASSERT_TRUE(SaveStep(10, 1).ok());
  const TemporaryFolder folder;
  const auto fetched = Import(root_ + "/step-00000010", folder.path(), state_.tensors);
  ASSERT_TRUE(fetched.ok()) << fetched.status().ToString();
  const auto reader = Reader::Open(folder.path() + "/" + StepFolderName(10));
  ASSERT_TRUE(reader.ok()) << reader.status().ToString();
  EXPECT_GT((*reader)->manifest().files[0].bytes, 9 << 20);
  ASSERT_TRUE((*reader)->CheckFileHashes().ok());
}

TEST_F(S3StorageTest, AFileThatWasNotWrittenIsNamed) {
  const auto storage = Open();
  ASSERT_TRUE(storage->Prepare().ok());
  const Status status = storage->Persist(10, 1, {.name = "none.g1.h5", .bytes = 3, .hash = ""}, {});
  EXPECT_THAT(status.message(), HasSubstr("open " + storage->SaveFolder(10, 1) + "/none.g1.h5"));
  EXPECT_THAT(Keys(), IsEmpty());
}

}  // namespace
}  // namespace heddle::checkpoint
