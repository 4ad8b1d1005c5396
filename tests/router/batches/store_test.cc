// Files and batches on disk: what survives, what is refused at which limit, and who may see what.
#include "router/batches/store.h"

#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <fstream>

namespace quire::batches {
namespace {

namespace fs = std::filesystem;

class StoreTest : public testing::Test {
 protected:
  StoreTest() {
    char path[] = "/tmp/quire_store_XXXXXX";
    root_ = mkdtemp(path);
    dir_ = (root_ / "batches").string();
  }
  ~StoreTest() override { fs::remove_all(root_); }
  std::unique_ptr<Store> Open() {
    auto store = Store::Open(dir_, limits_, metrics_, [this] { return now_ += 1000; });
    EXPECT_TRUE(store.ok()) << store.status();
    return std::move(*store);
  }
  static BatchObject Draft(const std::string& tenant, const std::string& file) {
    BatchObject batch;
    batch.input_file_id = file;
    batch.endpoint = "/v1/completions";
    batch.creator.tenant = tenant;
    return batch;
  }
  std::string FolderOfOnlyTenant() const {
    for (const auto& entry : fs::directory_iterator(dir_)) {
      if (entry.is_directory()) return entry.path().string();
    }
    return "";
  }

  fs::path root_;
  std::string dir_;
  Limits limits_;
  Metrics registry_;
  BatchMetrics metrics_{registry_};
  int64_t now_ = 1'700'000'000'000'000;
};

std::string Whole(Store& store, const std::string& tenant, const std::string& id) {
  auto contents = store.Contents(tenant, id);
  if (!contents.ok()) return "error";
  std::string text(100, '\0');
  text.resize(static_cast<size_t>(pread(contents.value()->get(), text.data(), text.size(), 0)));
  return text;
}

TEST_F(StoreTest, FilesSurviveAndBelongToTheirTenant) {
  std::string id;
  {
    const auto store = Open();
    const auto kept = store->KeepFile("acme", "../../etc/passwd\"", "line\n");
    ASSERT_TRUE(kept.ok());
    id = kept.value().id;
    EXPECT_TRUE(IsId(id, kFilePrefix));
  }
  const auto store = Open();
  const auto file = store->File("acme", id);
  ASSERT_TRUE(file.ok()) << file.error().message;
  EXPECT_EQ(file.value().filename, "../../etc/passwd\"");
  EXPECT_EQ(file.value().bytes, 5);
  EXPECT_EQ(Whole(*store, "acme", id), "line\n");
  EXPECT_EQ(store->File("beta", id).error().code, ApiCode::kNotFound);
  EXPECT_EQ(store->Contents("beta", id).error().code, ApiCode::kNotFound);
  EXPECT_EQ(store->DeleteFile("beta", id)->code, ApiCode::kNotFound);
  EXPECT_TRUE(store->Files("beta", {10}).value().objects.empty());
  EXPECT_FALSE(store->DeleteFile("acme", id));
  EXPECT_EQ(store->File("acme", id).error().code, ApiCode::kNotFound);
  EXPECT_EQ(store->DeleteFile("acme", id)->code, ApiCode::kNotFound);
}

TEST_F(StoreTest, NoWordOfAClientBecomesAPath) {
  const auto store = Open();
  const std::string id = store->KeepFile("a", "f", "x").value().id;
  for (const std::string& word :
       {std::string("../") + id, id + ".json", std::string("file-../../../../etc/passwd"),
        std::string("file-") + std::string(32, '/'), std::string(), id + std::string(1, '\0'),
        std::string("file-") + std::string(32, 'A'), id.substr(1)}) {
    EXPECT_EQ(store->File("a", word).error().code, ApiCode::kNotFound) << word;
    EXPECT_EQ(store->Contents("a", word).error().code, ApiCode::kNotFound) << word;
    EXPECT_EQ(store->DeleteFile("a", word)->code, ApiCode::kNotFound) << word;
    EXPECT_EQ(store->Batch("a", word).error().code, ApiCode::kNotFound) << word;
    EXPECT_EQ(store->Cancel("a", word).error().code, ApiCode::kNotFound) << word;
  }
  // Also of a tenant: its folder's name is a hash.
  const std::string sibling = root_.filename().string() + "-sibling";
  EXPECT_TRUE(store->KeepFile("../../" + sibling, "f", "x").ok());
  EXPECT_FALSE(fs::exists(root_.parent_path() / sibling));
}

TEST_F(StoreTest, LinksAreRefused) {
  const auto store = Open();
  const std::string id = store->KeepFile("a", "f", "secret").value().id;
  const std::string folder = FolderOfOnlyTenant();
  fs::rename(folder + "/" + id, root_ / "moved");
  fs::create_symlink(root_ / "moved", folder + "/" + id);
  EXPECT_EQ(store->Contents("a", id).error().code, ApiCode::kInternal);
  fs::rename(folder, root_ / "elsewhere");
  fs::create_directory_symlink(root_ / "elsewhere", folder);
  EXPECT_FALSE(store->KeepFile("a", "f", "x").ok());
  fs::create_directory_symlink(dir_, root_ / "link");
  EXPECT_FALSE(
      Store::Open((root_ / "link").string(), limits_, metrics_, [] { return int64_t{1}; }).ok());
}

TEST_F(StoreTest, FilesAtTheLimitAreKeptAndOneMoreIsRefusedAndCounted) {
  limits_.max_files = 4;
  const auto store = Open();
  std::vector<std::string> ids;
  for (int i = 0; i < 2; ++i) ids.push_back(store->KeepFile("a", "f", "x").value().id);
  const auto more = store->KeepFile("a", "f", "x");  // its half
  EXPECT_EQ(more.error().code, ApiCode::kRateLimited);
  EXPECT_NE(more.error().message.find("--max-batch-files"), std::string::npos);
  EXPECT_TRUE(store->KeepFile("b", "f", "x").ok());
  EXPECT_TRUE(store->KeepFile("b", "f", "x").ok());
  EXPECT_EQ(store->KeepFile("c", "f", "x").error().code, ApiCode::kRateLimited);
  EXPECT_EQ(metrics_.refused_files.value(), 2u);
  EXPECT_FALSE(store->DeleteFile("a", ids[0]));
  EXPECT_TRUE(store->KeepFile("c", "f", "x").ok());
  EXPECT_EQ(metrics_.files.value(), 4);
}

TEST_F(StoreTest, BytesAtTheLimitAreKeptAndOneMoreIsRefusedAndCounted) {
  limits_.max_file_bytes = 2 * 4096;
  const auto store = Open();
  const std::string probe = store->KeepFile("a", "f", "").value().id;
  const size_t description = static_cast<size_t>(metrics_.file_bytes.value());
  EXPECT_FALSE(store->DeleteFile("a", probe));
  // A file of as many digits has a description of as many bytes, but for the digits of its size.
  const std::string most(4096 - description - 3, 'x');
  const auto kept = store->KeepFile("a", "f", most);
  ASSERT_TRUE(kept.ok()) << kept.error().message;
  EXPECT_EQ(metrics_.file_bytes.value(), 4096);
  EXPECT_EQ(store->KeepFile("a", "f", "").error().code, ApiCode::kRateLimited);
  EXPECT_EQ(store->KeepFile("b", "f", most + "x").error().code, ApiCode::kTooLarge);
  EXPECT_EQ(metrics_.refused_bytes.value(), 2u);
  EXPECT_EQ(Whole(*store, "a", kept.value().id), most.substr(0, 100));
  EXPECT_TRUE(store->KeepFile("b", "f", most).ok());
}

// A client that reads slowly would keep the room of files that no limit counts any more.
TEST_F(StoreTest, ADeletedFileTakesNoRoomWhereItIsStillBeingRead) {
  const auto store = Open();
  const std::string id = store->KeepFile("a", "f", std::string(100'000, 'x')).value().id;
  const auto reading = store->Contents("a", id);
  ASSERT_TRUE(reading.ok());
  EXPECT_EQ(BytesOf(*reading.value()).value(), 100'000);
  EXPECT_FALSE(store->DeleteFile("a", id));
  EXPECT_EQ(BytesOf(*reading.value()).value(), 0);
  struct stat info = {};
  ASSERT_EQ(fstat(reading.value()->get(), &info), 0);
  EXPECT_EQ(info.st_blocks, 0);
  EXPECT_EQ(metrics_.file_bytes.value(), 0);
}

TEST_F(StoreTest, OpenBatchesAtTheLimitWaitAndOneMoreIsRefusedAndCounted) {
  limits_.max_open = 4;
  const auto store = Open();
  const std::string a = store->KeepFile("a", "f", "x").value().id;
  const std::string b = store->KeepFile("b", "f", "x").value().id;
  EXPECT_TRUE(store->Create(Draft("a", a)).ok());
  EXPECT_TRUE(store->Create(Draft("a", a)).ok());
  EXPECT_EQ(store->Create(Draft("a", a)).error().code, ApiCode::kRateLimited);
  EXPECT_TRUE(store->Create(Draft("b", b)).ok());
  EXPECT_EQ(metrics_.refused_open.value(), 1u);
  EXPECT_EQ(store->Look()->size(), 3u);
  EXPECT_EQ(metrics_.open.value(), 3);
}

TEST_F(StoreTest, ABatchNeedsAFileOfItsTenantWhichStaysAsLongAsItRuns) {
  const auto store = Open();
  const std::string id = store->KeepFile("a", "f", "x").value().id;
  EXPECT_EQ(store->Create(Draft("b", id)).error().code, ApiCode::kNotFound);
  const auto batch = store->Create(Draft("a", id));
  ASSERT_TRUE(batch.ok());
  EXPECT_EQ(store->DeleteFile("a", id)->code, ApiCode::kConflict);
  auto lease = store->Take(store->Look()->front());
  ASSERT_TRUE(lease.ok() && *lease != nullptr);
  EXPECT_TRUE(store->Finish(**lease, Status::kCompleted).ok());
  EXPECT_FALSE(store->DeleteFile("a", id));
  EXPECT_EQ(store->Batch("a", batch.value().id).value().status, Status::kCompleted);
  EXPECT_EQ(store->Batch("b", batch.value().id).error().code, ApiCode::kNotFound);
}

TEST_F(StoreTest, ListsHavePages) {
  const auto store = Open();
  std::vector<std::string> ids;
  for (int i = 0; i < 5; ++i) ids.push_back(store->KeepFile("a", "f", "x").value().id);
  const auto first = store->Files("a", {2}).value();
  ASSERT_EQ(first.objects.size(), 2u);
  EXPECT_TRUE(first.has_more);
  EXPECT_EQ(first.objects[0].id, ids[4]);
  const auto rest = store->Files("a", {3, first.objects[1].id}).value();
  ASSERT_EQ(rest.objects.size(), 3u);
  EXPECT_FALSE(rest.has_more);
  EXPECT_EQ(rest.objects[2].id, ids[0]);
  EXPECT_EQ(store->Files("a", {9, ids[0], true}).value().objects[0].id, ids[1]);
  EXPECT_TRUE(store->Files("a", {9, "", false, "batch_output"}).value().objects.empty());
}

// Tenants take turns by what their work costs: who keeps many files pays for each look at them.
TEST_F(StoreTest, WhatIsReadOfAFolderIsPartOfItsCost) {
  const auto store = Open();
  EXPECT_EQ(store->CostOf("acme", 100), 0u);
  for (int i = 0; i < 8; ++i) ASSERT_TRUE(store->KeepFile("acme", "a", "x").ok());
  store->Look().IgnoreError();
  const size_t names = store->CostOf("acme", 0);
  EXPECT_GE(names, 8u * 512);
  EXPECT_GE(store->CostOf("acme", 4), names + 4u * 8192);
  EXPECT_EQ(store->CostOf("acme", SIZE_MAX), store->CostOf("acme", 16)) << "it has no more";
  EXPECT_EQ(store->CostOf("beta", SIZE_MAX), 0u);
}

TEST_F(StoreTest, TheOldestEndedBatchesGiveWay) {
  limits_.max_kept = 3;
  const auto store = Open();
  const std::string file = store->KeepFile("a", "f", "x").value().id;
  std::vector<std::string> ids;
  for (int i = 0; i < 4; ++i) {
    ids.push_back(store->Create(Draft("a", file)).value().id);
    if (i == 0) continue;  // the first one stays open
    const auto all = store->Look();
    for (const OpenBatch& open : *all) {
      if (open.id != ids.back()) continue;
      auto lease = store->Take(open);
      ASSERT_TRUE(store->Finish(**lease, Status::kCompleted).ok());
    }
  }
  EXPECT_TRUE(store->Batch("a", ids[0]).ok());
  EXPECT_FALSE(store->Batch("a", ids[1]).ok());
  EXPECT_TRUE(store->Batch("a", ids[2]).ok());
  EXPECT_EQ(metrics_.forgotten.value(), 1u);
}

TEST_F(StoreTest, OneRouterAtATimeHasABatchAndTheOtherShowsIt) {
  const auto one = Open(), other = Open();
  const std::string file = one->KeepFile("a", "f", "x").value().id;
  const std::string id = one->Create(Draft("a", file)).value().id;
  const OpenBatch open = one->Look()->front();
  auto lease = one->Take(open);
  ASSERT_TRUE(lease.ok() && *lease != nullptr);
  EXPECT_EQ(*other->Take(open), nullptr);
  (*lease)->batch.status = Status::kInProgress;
  (*lease)->batch.counts = {7, 3, 1};
  ASSERT_TRUE(one->Save(**lease).ok());
  const auto seen = other->Batch("a", id);
  EXPECT_EQ(seen.value().status, Status::kInProgress);
  EXPECT_EQ(seen.value().counts.completed, 3u);
  const auto cancelled = other->Cancel("a", id);
  EXPECT_NE(Json(cancelled.value()).find("\"status\":\"cancelling\""), std::string::npos);
  EXPECT_TRUE(one->Look()->front().cancelled);
  lease->reset();  // as when its process dies
  auto next = other->Take(open);
  ASSERT_TRUE(next.ok() && *next != nullptr);
  EXPECT_NE((*next)->batch.cancelling_at, 0);
  ASSERT_TRUE(other->Finish(**next, Status::kCancelled).ok());
  EXPECT_TRUE(one->Look()->empty());
  EXPECT_EQ(*one->Take(open), nullptr);
  EXPECT_EQ(one->Cancel("a", id).error().code, ApiCode::kConflict);
}

// A kill may come between any two steps of the end of a batch.
TEST_F(StoreTest, AnEndThatWasInterruptedIsMadeAgain) {
  const auto store = Open();
  const std::string file = store->KeepFile("a", "f", "x").value().id;
  const std::string id = store->Create(Draft("a", file)).value().id;
  auto lease = store->Take(store->Look()->front());
  std::ofstream((*lease)->PathOf(".out")) << "answers\n";
  std::ofstream((*lease)->PathOf(".err")) << "";
  BatchObject& batch = (*lease)->batch;
  batch.status = Status::kFinalizing;
  batch.ends_as = Status::kExpired;
  batch.output_file_id = "file-" + std::string(32, 'a');
  batch.error_file_id = "file-" + std::string(32, 'b');
  batch.has_output = true;
  ASSERT_TRUE(store->Save(**lease).ok());
  fs::rename((*lease)->PathOf(".out"), (*lease)->folder + "/" + batch.output_file_id);
  std::ofstream((*lease)->folder + "/" + batch.output_file_id + ".json")
      << Kept(FileObject{batch.output_file_id, "o.jsonl", std::string(kOutputPurpose), 8, 1});
  lease->reset();
  lease = store->Take(store->Look()->front());
  ASSERT_TRUE(store->Finish(**lease, (*lease)->batch.ends_as).ok());
  const BatchObject ended = store->Batch("a", id).value();
  EXPECT_EQ(ended.status, Status::kExpired);
  EXPECT_EQ(Whole(*store, "a", ended.output_file_id), "answers\n");
  EXPECT_FALSE(ended.has_errors);
  EXPECT_FALSE(fs::exists((*lease)->PathOf(".err")));
  EXPECT_NE(Json(ended).find("\"error_file_id\":null"), std::string::npos);
}

// What was left behind by a kill: neither half an upload nor half a batch is ever shown.
TEST_F(StoreTest, WhatAKillLeftIsNotShownAndIsClearedAway) {
  auto store = Open();
  ASSERT_TRUE(store->KeepFile("a", "f", "x").ok());
  const std::string folder = FolderOfOnlyTenant();
  const std::string orphan = "file-" + std::string(32, 'c'), mark = "batch_" + std::string(32, 'd');
  std::ofstream(folder + "/" + orphan) << "half";
  std::ofstream(folder + "/.tmp-1234") << "half";
  std::ofstream(folder + "/" + mark + ".open") << "";
  EXPECT_EQ(store->Files("a", {10}).value().objects.size(), 1u);
  EXPECT_EQ(store->File("a", orphan).error().code, ApiCode::kNotFound);
  EXPECT_EQ(*store->Take({fs::path(folder).filename(), mark, false}), nullptr);
  EXPECT_FALSE(fs::exists(folder + "/" + mark + ".open"));
  now_ = int64_t{4'000'000'000} * 1'000'000;  // an hour later, and more
  ASSERT_TRUE(store->Look().ok());
  EXPECT_FALSE(fs::exists(folder + "/" + orphan));
  EXPECT_FALSE(fs::exists(folder + "/.tmp-1234"));
  EXPECT_EQ(store->Files("a", {10}).value().objects.size(), 1u);
}

// A folder of no room: the error says so, and what was kept before is as it was.
TEST_F(StoreTest, AFullDiskIsOneClearErrorAndLosesNothing) {
  EXPECT_TRUE(absl::IsResourceExhausted(DiskError("x", ENOSPC)));
  EXPECT_TRUE(absl::IsResourceExhausted(DiskError("x", EDQUOT)));
  EXPECT_TRUE(absl::IsInternal(DiskError("x", EIO)));
  const absl::Status full = DiskError("a file cannot be written", ENOSPC);
  EXPECT_NE(StatusMessage(full).find("--batches-dir is full"), std::string::npos);
}

TEST(BatchObjects, WhatIsKeptIsReadAgain) {
  BatchObject batch;
  batch.id = "batch_" + std::string(32, '1');
  batch.endpoint = "/v1/responses";
  batch.input_file_id = "file-" + std::string(32, '2');
  batch.status = Status::kFailed;
  batch.errors = {{"invalid_json", "why \"\n", "", 7}, {"empty_file", "none", "input_file_id", {}}};
  batch.metadata = {{"a", "1"}, {"b", "\xE2\x82\xAC"}};
  batch.counts = {5, 3, 2};
  batch.created_at = 10;
  batch.expires_at = 20;
  batch.ended_at = 15;
  batch.creator = {"acme", {"demo", "other"}, 4};
  BatchObject again;
  ASSERT_TRUE(Read(Kept(batch), again).ok());
  EXPECT_EQ(Kept(again), Kept(batch));
  EXPECT_EQ(Json(batch).find("acme"), std::string::npos);
  EXPECT_NE(Json(batch).find("\"failed_at\":15"), std::string::npos);
  EXPECT_FALSE(Read("{}", again).ok());
  EXPECT_FALSE(Read("half", again).ok());
}

std::string CreateBody(const std::string& more) {
  return R"({"input_file_id":"file-)" + std::string(32, '2') +
         R"(","endpoint":"/v1/completions","completion_window":"24h")" + more + "}";
}

TEST(BatchObjects, MetadataAtItsLimitsAndOneMore) {
  const auto pairs = [](size_t count, size_t key, size_t value) {
    std::string out;
    for (size_t i = 0; i < count; ++i) {
      std::string name = std::to_string(i);
      name.resize(key, 'k');
      out += (i > 0 ? "," : "") + ('"' + name) + "\":\"" + std::string(value, 'v') + '"';
    }
    return CreateBody(",\"metadata\":{" + out + "}");
  };
  EXPECT_TRUE(ReadCreate(pairs(16, 64, 512)).ok());
  EXPECT_FALSE(ReadCreate(pairs(17, 64, 1)).ok());
  EXPECT_FALSE(ReadCreate(pairs(1, 65, 1)).ok());
  EXPECT_FALSE(ReadCreate(pairs(1, 64, 513)).ok());
  EXPECT_TRUE(
      ReadCreate(CreateBody(std::string(kMaxCreateBytes - CreateBody("").size(), ' '))).ok());
  EXPECT_FALSE(
      ReadCreate(CreateBody(std::string(kMaxCreateBytes - CreateBody("").size() + 1, ' '))).ok());
}

TEST(BatchObjects, WhatIsNotServedIsRefusedByName) {
  EXPECT_EQ(ReadCreate(CreateBody(",\"extra\":1")).error().param, "extra");
  EXPECT_EQ(ReadCreate(CreateBody(",\"output_expires_after\":{}")).error().param,
            "output_expires_after");
  EXPECT_EQ(ReadCreate(CreateBody(",\"completion_window\":\"1h\"")).error().param,
            "completion_window");
  EXPECT_EQ(ReadCreate(CreateBody(",\"endpoint\":\"/v1/embeddings\"")).error().param, "endpoint");
  EXPECT_EQ(ReadCreate(CreateBody(",\"input_file_id\":\"../x\"")).error().param, "input_file_id");
  EXPECT_EQ(ReadCreate(CreateBody(",\"metadata\":[]")).error().param, "metadata");
  EXPECT_FALSE(ReadCreate("[]").ok());
}

}  // namespace
}  // namespace quire::batches
