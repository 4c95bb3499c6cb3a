// Engine figures on the real model: TTFT of a 3,000-token prompt that hits in DRAM, and after a restart on NVMe,
// against the same prompt cold.
// The model: $KVIST_MODEL (make bench sets it). The store: a folder under /var/tmp (a disk even where /tmp is memory),
// removed at the end.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "bench/figures.h"
#include "cachestore/await.h"
#include "cachestore/local_store.h"
#include "cachestore/lock_order_checks.h"
#include "engine/generate/generator.h"
#include "engine/model/gguf.h"
#include "engine/model/model.h"
#include "engine/text/tokenizer.h"

namespace kvist {
namespace {

constexpr std::size_t kPromptTokens = 3000;
constexpr std::uint32_t kBlockTokens = 64;
constexpr int kColdRuns = 3;
constexpr int kHitRuns = 7;

template <typename T>
T OrDie(absl::StatusOr<T> value, const char* what) {
  if (!value.ok()) {
    std::fprintf(stderr, "engine_bench: %s: %s\n", what, std::string(value.status().message()).c_str());
    std::exit(2);
  }
  return *std::move(value);
}

struct Subject {
  std::unique_ptr<engine::Model> model;
  std::unique_ptr<engine::Tokenizer> tokenizer;
  Digest128 fingerprint;
};

std::unique_ptr<LocalStore> OpenStore(const std::string& directory) {
  LocalStoreOptions options;
  options.nvme.directory = directory;
  options.nvme.capacity_bytes = std::uint64_t{4} << 30;
  options.dram_bytes = std::uint64_t{1} << 30;
  return OrDie(LocalStore::Open(options), "store");
}

// TTFT in seconds; dies if the number of cached tokens is not what the run claims to measure.
double Ttft(Subject& subject, PrefixStore* store, const std::string& salt, std::span<const TokenId> prompt,
            std::size_t expect_cached) {
  engine::StoreBinding binding;
  binding.store = store;
  binding.salt = salt;
  auto generator = OrDie(engine::Generator::Create(subject.model.get(), subject.tokenizer.get(), subject.fingerprint,
                                                   binding, kBlockTokens, prompt.size() + 1),
                         "generator");
  auto silent = [](auto&&...) {};
  const engine::GenerateResult result =
      OrDie(generator->Generate(prompt, {.max_new_tokens = 1, .sampling = {}}, {silent, silent}), "generate");
  if (result.cached_tokens != expect_cached || !result.store_error.empty()) {
    std::fprintf(stderr, "engine_bench: %zu cached tokens, expected %zu; %s\n", result.cached_tokens, expect_cached,
                 result.store_error.c_str());
    std::exit(2);
  }
  return absl::ToDoubleSeconds(result.ttft);
}

int Run(const std::string& model_path, const std::string& directory) {
  std::shared_ptr<const engine::GgufFile> file = OrDie(engine::GgufFile::Open(model_path), "model");
  Subject subject;
  subject.tokenizer = OrDie(engine::Tokenizer::FromGguf(*file), "tokenizer");
  subject.fingerprint = file->Fingerprint();
  subject.model = OrDie(engine::Model::Load(file, {}), "model");

  std::string text;
  std::vector<TokenId> prompt;
  for (int line = 0; prompt.size() < kPromptTokens; ++line) {
    text +=
        "Entry " + std::to_string(line) + ": the gardener noted the weather, the birds and the first open leaves.\n";
    prompt = subject.tokenizer->Encode(text, {});
  }
  prompt.resize(kPromptTokens);
  const std::size_t cached = (kPromptTokens - 1) / kBlockTokens * kBlockTokens;

  std::vector<double> cold, dram, nvme;
  {
    std::unique_ptr<LocalStore> store = OpenStore(directory);
    for (int run = 0; run < kColdRuns; ++run) {
      const std::string salt = std::to_string(run);
      cold.push_back(Ttft(subject, store.get(), salt, prompt, 0));
      for (int hit = 0; hit < kHitRuns; ++hit) dram.push_back(Ttft(subject, store.get(), salt, prompt, cached));
    }
  }
  for (int run = 0; run < kColdRuns; ++run) {  // each start's first request reads from NVMe
    std::unique_ptr<LocalStore> store = OpenStore(directory);
    nvme.push_back(Ttft(subject, store.get(), std::to_string(run), prompt, cached));
  }
  std::printf("TTFT of %zu tokens, medians: cold %.3f s, DRAM hit %.4f s, NVMe hit after restart %.4f s\n",
              kPromptTokens, bench::Median(cold), bench::Median(dram), bench::Median(nvme));
  bench::Figures figures;
  figures.AtMost("ttft_dram_hit_vs_cold", bench::Median(dram) / bench::Median(cold), 1.0 / 20);
  figures.AtMost("ttft_nvme_hit_vs_cold", bench::Median(nvme) / bench::Median(cold), 1.0 / 10);
  return figures.Report();
}

}  // namespace
}  // namespace kvist

int main() {
  kvist::SkipLockOrderChecks();
  const char* model = std::getenv("KVIST_MODEL");
  if (model == nullptr) {
    std::fprintf(stderr, "engine_bench: set KVIST_MODEL to a GGUF file; `make bench GROUP=engine` does\n");
    return 2;
  }
  std::string folder = "/var/tmp/kvist-bench-XXXXXX";
  if (mkdtemp(folder.data()) == nullptr) {
    std::perror("engine_bench: /var/tmp");
    return 2;
  }
  const int status = kvist::Run(model, folder);
  std::filesystem::remove_all(folder);
  return status;
}
