#include "engine/model/llama.h"

#include <gmock/gmock.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "engine/model/model.h"
#include "tests/engine/model/naive_llama.h"
#include "tests/engine/tiny_gguf.h"

namespace kvist::engine {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

// The file stays mapped after its name is gone.
absl::StatusOr<std::shared_ptr<const GgufFile>> OpenBytes(const std::string& bytes) {
  const std::string path = ::testing::TempDir() + "kvist_llama_test_" + std::to_string(::getpid()) + ".gguf";
  if (absl::Status status = WriteWholeFile(path, bytes); !status.ok()) return status;
  absl::StatusOr<std::unique_ptr<GgufFile>> file = GgufFile::Open(path);
  std::remove(path.c_str());
  if (!file.ok()) return file.status();
  return std::shared_ptr<const GgufFile>(*std::move(file));
}

std::string LoadError(const std::string& bytes) {
  absl::StatusOr<std::shared_ptr<const GgufFile>> file = OpenBytes(bytes);
  if (!file.ok()) return std::string(file.status().message());
  absl::StatusOr<std::unique_ptr<Model>> model = Model::Load(*file, {.threads = 1});
  if (model.ok()) return "loaded";
  EXPECT_EQ(model.status().code(), absl::StatusCode::kInvalidArgument);
  return std::string(model.status().message());
}

std::unique_ptr<Model> LoadTiny(const TinyGgufOptions& options, std::size_t threads = 1) {
  absl::StatusOr<std::shared_ptr<const GgufFile>> file = OpenBytes(TinyGgufBytes(options));
  EXPECT_TRUE(file.ok()) << file.status();
  absl::StatusOr<std::unique_ptr<Model>> model = Model::Load(*file, {.threads = threads});
  EXPECT_TRUE(model.ok()) << model.status();
  return *std::move(model);
}

std::vector<TokenId> Tokens(std::size_t n, std::uint32_t vocab, std::uint32_t seed = 1) {
  std::mt19937 random(seed);
  std::vector<TokenId> out(n);
  for (TokenId& token : out) token = random() % vocab;
  return out;
}

// Pages for one sequence, filled with what an F16 reads as NaN.
class Pages {
 public:
  Pages(const Model& model, std::size_t tokens, std::size_t page_tokens) {
    const KvLayout layout = model.kv_layout(page_tokens);
    kv_.page_tokens = page_tokens;
    memory_.resize((tokens + page_tokens - 1) / page_tokens);
    for (std::vector<std::byte>& page : memory_) {
      page.assign(layout.layers * layout.layer_bytes, std::byte{0xff});
      kv_.pages.push_back({.data = page.data(), .writable = page.data(), .id = 0});
    }
  }
  KvPages& kv() { return kv_; }
  const std::vector<std::vector<std::byte>>& memory() const { return memory_; }

 private:
  std::vector<std::vector<std::byte>> memory_;
  KvPages kv_;
};

struct Outcome {
  std::vector<float> logits;
  std::vector<std::vector<std::byte>> pages;
};

// Computes the tokens in Forward calls of the given sizes, repeated as needed; logits of the last.
Outcome Compute(Model& model, const std::vector<TokenId>& tokens, const std::vector<std::size_t>& sizes,
                std::size_t page_tokens = 16) {
  Pages pages(model, tokens.size(), page_tokens);
  Outcome out;
  out.logits.resize(model.config().vocab);
  std::size_t done = 0;
  for (std::size_t call = 0; done < tokens.size(); ++call) {
    const std::size_t n = std::min(sizes[call % sizes.size()], tokens.size() - done);
    const bool last = done + n == tokens.size();
    EXPECT_TRUE(model
                    .Forward(std::span(tokens).subspan(done, n), done, pages.kv(),
                             last ? std::span<float>(out.logits) : std::span<float>())
                    .ok());
    done += n;
  }
  out.pages = pages.memory();
  return out;
}

bool SameBits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

TEST(Llama, LogitsEqualAnIndependentForwardPassForEveryTensorType) {
  using kernels::TensorType;
  for (const TensorType type : {TensorType::kF32, TensorType::kF16, TensorType::kBF16, TensorType::kQ8_0,
                                TensorType::kQ4_0, TensorType::kQ4_1, TensorType::kQ4_K, TensorType::kQ6_K}) {
    SCOPED_TRACE(kernels::InfoOf(type).name);
    TinyGgufOptions options{.matrix_type = type};
    if (kernels::InfoOf(type).block_elements == 256) options = {.head_dim = 64, .ffn = 256, .matrix_type = type};
    absl::StatusOr<std::shared_ptr<const GgufFile>> file = OpenBytes(TinyGgufBytes(options));
    ASSERT_TRUE(file.ok()) << file.status();
    std::unique_ptr<Model> model = *Model::Load(*file, {.threads = 2});
    const std::vector<TokenId> tokens = Tokens(24, model->config().vocab);
    const std::vector<double> expected = NaiveLlamaLogits(**file, tokens).back();
    const Outcome outcome = Compute(*model, tokens, {tokens.size()});
    ASSERT_EQ(expected.size(), outcome.logits.size());
    // Logits are of size 1 to 10; the KV's rounding to F16 may fall to either side, some 1e-3 of that.
    for (std::size_t i = 0; i < expected.size(); ++i) ASSERT_NEAR(outcome.logits[i], expected[i], 1e-2) << i;
  }
}

TEST(Llama, AnOutputMatrixOfItsOwnIsUsed) {
  absl::StatusOr<std::shared_ptr<const GgufFile>> file = OpenBytes(TinyGgufBytes({.tied_embeddings = false}));
  ASSERT_TRUE(file.ok());
  std::unique_ptr<Model> model = *Model::Load(*file, {.threads = 1});
  const std::vector<TokenId> tokens = Tokens(5, model->config().vocab);
  const std::vector<double> expected = NaiveLlamaLogits(**file, tokens).back();
  const Outcome outcome = Compute(*model, tokens, {5});
  for (std::size_t i = 0; i < expected.size(); ++i) ASSERT_NEAR(outcome.logits[i], expected[i], 1e-2) << i;
}

TEST(Llama, KvAndLogitsDoNotDependOnCallsOrThreads) {
  const std::size_t count = 2 * LlamaModel::kChunkTokens + 37;
  std::unique_ptr<Model> one = LoadTiny({.matrix_type = kernels::TensorType::kQ4_1}, 1);
  std::unique_ptr<Model> two = LoadTiny({.matrix_type = kernels::TensorType::kQ4_1}, 2);
  std::unique_ptr<Model> three = LoadTiny({.matrix_type = kernels::TensorType::kQ4_1}, 3);
  const std::vector<TokenId> tokens = Tokens(count, one->config().vocab);
  const Outcome whole = Compute(*one, tokens, {count});
  const std::vector<std::vector<std::size_t>> splits = {{count}, {1}, {16}, {7, 64, 1, 30}, {300, 5}, {count - 1, 1}};
  for (Model* model : {one.get(), two.get(), three.get()}) {
    for (const std::vector<std::size_t>& sizes : splits) {
      const Outcome outcome = Compute(*model, tokens, sizes);
      ASSERT_TRUE(SameBits(outcome.logits, whole.logits)) << "calls of " << sizes[0];
      // Every slot of the last page too: slots never written are still as they were.
      ASSERT_EQ(outcome.pages, whole.pages) << "calls of " << sizes[0];
    }
  }
}

TEST(Llama, PageSizeDoesNotEnterIntoTheLogits) {
  std::unique_ptr<Model> model = LoadTiny({});
  const std::vector<TokenId> tokens = Tokens(150, model->config().vocab);
  const std::vector<float> expected = Compute(*model, tokens, {150}, 16).logits;
  for (const std::size_t page : {32, 64, 512})
    EXPECT_TRUE(SameBits(Compute(*model, tokens, {40}, page).logits, expected));
}

TEST(Llama, ASequenceIsUnaffectedByOnesBeforeIt) {
  std::unique_ptr<Model> model = LoadTiny({});
  const std::vector<TokenId> tokens = Tokens(50, model->config().vocab, 1);
  const Outcome fresh = Compute(*model, tokens, {50});
  Compute(*model, Tokens(300, model->config().vocab, 2), {300});
  const Outcome later = Compute(*model, tokens, {50});
  EXPECT_TRUE(SameBits(later.logits, fresh.logits));
  EXPECT_EQ(later.pages, fresh.pages);
}

TEST(Llama, ContinuingOnReadOnlyPagesEqualsComputingAll) {
  std::unique_ptr<Model> model = LoadTiny({});
  const std::vector<TokenId> tokens = Tokens(40, model->config().vocab);
  const Outcome whole = Compute(*model, tokens, {40});
  Pages pages(*model, 40, 16);
  KvPages& kv = pages.kv();
  for (std::size_t page = 0; page < 2; ++page) {
    kv.pages[page] = {.data = whole.pages[page].data(), .writable = nullptr, .id = 0};
  }
  std::vector<float> logits(model->config().vocab);
  ASSERT_TRUE(model->Forward(std::span(tokens).subspan(32), 32, kv, logits).ok());
  EXPECT_TRUE(SameBits(logits, whole.logits));
}

TEST(Llama, LayoutTellsApartWhatCannotBeShared) {
  std::unique_ptr<Model> model = LoadTiny({});
  const KvLayout layout = model->kv_layout(64);
  EXPECT_EQ(layout.layout, "full/L2/H2/K16/V16/f16/T64/k:h,d,t/v:h,t,d");
  EXPECT_EQ(layout.layers, 2u);
  EXPECT_EQ(layout.layer_bytes, 2u * 2 * 16 * 64 * 2);
  EXPECT_NE(layout.layout, model->kv_layout(32).layout);
  EXPECT_NE(layout.positional, LoadTiny({.rope_base = 20000.0f})->kv_layout(64).positional);
  EXPECT_NE(layout.layout, LoadTiny({.layers = 3})->kv_layout(64).layout);
}

class LlamaForwardFault : public ::testing::Test {
 protected:
  std::string Error(const std::vector<TokenId>& tokens, std::size_t start, KvPages& kv, std::size_t logits = 0) {
    std::vector<float> room(logits);
    const absl::Status status = model_->Forward(tokens, start, kv, room);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    return std::string(status.message());
  }
  std::unique_ptr<Model> model_ = LoadTiny({.context = 64});
  Pages pages_{*model_, 128, 16};
};

TEST_F(LlamaForwardFault, TokenOutsideTheVocabularyIsNamed) {
  const std::string outside = std::to_string(model_->config().vocab);
  EXPECT_THAT(Error({1, model_->config().vocab}, 0, pages_.kv()), HasSubstr("token id " + outside));
}

TEST_F(LlamaForwardFault, BeyondTheContextNamesBothLengths) {
  EXPECT_THAT(Error(Tokens(2, 10), 63, pages_.kv()), AllOf(HasSubstr("2 tokens"), HasSubstr("context of 64")));
  EXPECT_THAT(Error({1}, SIZE_MAX, pages_.kv()), HasSubstr("context"));
}

TEST_F(LlamaForwardFault, BeyondThePagesIsRefused) {
  Pages small(*model_, 16, 16);
  EXPECT_THAT(Error(Tokens(17, 10), 0, small.kv()), HasSubstr("1 KV pages"));
}

TEST_F(LlamaForwardFault, ReadOnlyOrMissingPagesAreRefused) {
  pages_.kv().pages[1].writable = nullptr;
  EXPECT_THAT(Error(Tokens(20, 10), 0, pages_.kv()), HasSubstr("page 1"));
  pages_.kv().pages[0].data = nullptr;
  EXPECT_THAT(Error(Tokens(1, 10), 40, pages_.kv()), HasSubstr("page 0 has no data"));
}

TEST_F(LlamaForwardFault, OddArgumentsAreRefused) {
  EXPECT_THAT(Error({}, 0, pages_.kv()), HasSubstr("no tokens"));
  EXPECT_THAT(Error({1}, 0, pages_.kv(), 3), HasSubstr("3 logits"));
  pages_.kv().page_tokens = 24;
  EXPECT_THAT(Error({1}, 0, pages_.kv()), HasSubstr("24"));
}

// A tiny model's file with one thing changed.
struct Change {
  std::string drop = {};     // tensor left out
  std::string reshape = {};  // tensor given (or added with) `dims` and zero data of `type`
  std::vector<std::uint64_t> dims = {};
  std::uint32_t type = 0;
};

std::string Changed(const Change& change, const TinyGgufOptions& options = {}) {
  const std::shared_ptr<const GgufFile> file = *OpenBytes(TinyGgufBytes(options));
  GgufWriter writer = TinyGgufMetadata(options);
  bool added = change.reshape.empty();
  const auto add_changed = [&] {
    std::uint64_t elements = 1;
    for (const std::uint64_t dim : change.dims) elements *= dim;
    const kernels::TensorTypeInfo info = *kernels::FindTensorType(change.type);
    writer.AddTensor(change.reshape, change.dims, change.type,
                     std::string(elements / info.block_elements * info.block_bytes, '\0'));
    added = true;
  };
  for (const GgufTensor& tensor : file->tensors()) {
    if (tensor.name == change.drop) continue;
    if (tensor.name == change.reshape) {
      add_changed();
      continue;
    }
    writer.AddTensor(tensor.name, tensor.dims, static_cast<std::uint32_t>(tensor.type),
                     std::string(reinterpret_cast<const char*>(tensor.data.data()), tensor.data.size()));
  }
  if (!added) add_changed();
  return writer.Build();
}

TEST(LlamaLoad, UnsupportedArchitectureIsNamedWithTheSupportedOnes) {
  EXPECT_THAT(LoadError(TinyGgufBytes({.architecture = "mamba"})), AllOf(HasSubstr("'mamba'"), HasSubstr("llama")));
}

TEST(LlamaLoad, EveryMissingTensorIsNamed) {
  const std::shared_ptr<const GgufFile> file = *OpenBytes(TinyGgufBytes({}));
  ASSERT_EQ(LoadError(Changed({})), "loaded");
  for (const GgufTensor& tensor : file->tensors()) {
    EXPECT_THAT(LoadError(Changed({.drop = tensor.name})), AllOf(HasSubstr("lacks"), HasSubstr(tensor.name)));
  }
}

TEST(LlamaLoad, EveryMisshapenTensorIsNamedWithBothShapes) {
  const std::shared_ptr<const GgufFile> file = *OpenBytes(TinyGgufBytes({}));
  for (const GgufTensor& tensor : file->tensors()) {
    std::vector<std::uint64_t> dims = tensor.dims;
    dims[0] += 32;
    EXPECT_THAT(LoadError(Changed({.reshape = tensor.name, .dims = dims})),
                AllOf(HasSubstr(tensor.name), HasSubstr(std::to_string(dims[0])), HasSubstr("was expected")));
  }
}

TEST(LlamaLoad, MoreLayersThanTensorsNamesTheFirstMissing) {
  // Metadata of three layers over the tensors of two.
  const std::shared_ptr<const GgufFile> file = *OpenBytes(TinyGgufBytes({}));
  GgufWriter writer = TinyGgufMetadata({.layers = 3});
  for (const GgufTensor& tensor : file->tensors()) {
    writer.AddTensor(tensor.name, tensor.dims, static_cast<std::uint32_t>(tensor.type),
                     std::string(reinterpret_cast<const char*>(tensor.data.data()), tensor.data.size()));
  }
  EXPECT_THAT(LoadError(writer.Build()), HasSubstr("blk.2.attn_norm.weight"));
}

TEST(LlamaLoad, TensorsThatWouldBeIgnoredAreRefused) {
  EXPECT_THAT(LoadError(Changed({.reshape = "blk.0.attn_q.bias", .dims = {64}})), HasSubstr("blk.0.attn_q.bias"));
  EXPECT_THAT(LoadError(Changed({.reshape = "blk.1.ffn_gate_exps.weight", .dims = {64, 128, 2}})),
              HasSubstr("blk.1.ffn_gate_exps.weight"));
}

TEST(LlamaLoad, RopeFactorsOfTheWrongShapeOrValueAreRefused) {
  EXPECT_THAT(LoadError(Changed({.reshape = "rope_freqs.weight", .dims = {7}})), HasSubstr("rope_freqs.weight"));
  EXPECT_THAT(LoadError(Changed({.reshape = "rope_freqs.weight", .dims = {8}})), HasSubstr("positive"));
}

TEST(LlamaLoad, HostileMetadataIsNamed) {
  const auto error = [](const std::string& key, std::uint32_t value) {
    GgufWriter writer;
    writer.AddString("general.architecture", "llama");
    const std::vector<std::pair<std::string, std::uint32_t>> good = {
        {"block_count", 2},          {"context_length", 64},      {"embedding_length", 64},
        {"feed_forward_length", 64}, {"attention.head_count", 4}, {"attention.head_count_kv", 2}};
    for (const auto& [name, number] : good) writer.AddU32("llama." + name, name == key ? value : number);
    if (key == "expert_count" || key.starts_with("rope.")) writer.AddU32("llama." + key, value);
    return LoadError(writer.Build());
  };
  EXPECT_THAT(error("", 0), HasSubstr("token_embd.weight"));  // all well but for the tensors
  for (const std::uint32_t layers : {0u, 100000u}) {
    EXPECT_THAT(error("block_count", layers), AllOf(HasSubstr("block_count"), HasSubstr(std::to_string(layers))));
  }
  EXPECT_THAT(error("embedding_length", 0xffffffff), HasSubstr("embedding_length"));
  EXPECT_THAT(error("embedding_length", 68), HasSubstr("embedding_length"));
  EXPECT_THAT(error("attention.head_count", 3), HasSubstr("head_count"));
  EXPECT_THAT(error("attention.head_count_kv", 3), HasSubstr("head_count_kv"));
  EXPECT_THAT(error("attention.head_count_kv", 0), HasSubstr("head_count_kv"));
  EXPECT_THAT(error("feed_forward_length", 33), HasSubstr("feed_forward_length"));
  EXPECT_THAT(error("context_length", 0), HasSubstr("context_length"));
  EXPECT_THAT(error("expert_count", 8), HasSubstr("mixture of experts"));
  EXPECT_THAT(error("rope.dimension_count", 17), HasSubstr("rope.dimension_count"));
  EXPECT_THAT(error("rope.dimension_count", 15), HasSubstr("even"));
}

TEST(LlamaLoad, MissingKeyAndForeignRopeScalingAreNamed) {
  GgufWriter empty;
  empty.AddString("general.architecture", "llama");
  EXPECT_THAT(LoadError(empty.Build()), HasSubstr("lacks 'llama.block_count'"));
  GgufWriter scaled = TinyGgufMetadata({});
  scaled.AddString("llama.rope.scaling.type", "yarn");
  EXPECT_THAT(LoadError(scaled.Build()), HasSubstr("'yarn'"));
}

}  // namespace
}  // namespace kvist::engine
