#include "engine/generate/generator.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/time/clock.h"
#include "cachestore/tier/host_device_tier.h"
#include "engine/generate/prefix_cache.h"
#include "engine/generate/utf8_stream.h"
#include "engine/paged_kv/sequence_kv.h"
#include "fmt/format.h"

namespace kvist::engine {
namespace {

// Tokens per Forward call during prefill: often enough for a progress line, seldom enough to cost nothing.
constexpr std::size_t kPrefillStride = 512;

NamespaceSpec SpecOf(const KvLayout& layout, const Digest128& model_fingerprint, const StoreBinding& binding,
                     std::uint32_t block_tokens) {
  NamespaceSpec spec;
  spec.model = "xxh3-128:" + model_fingerprint.ToHex();
  spec.layout = layout.layout;
  spec.positional = layout.positional;
  spec.tenant = binding.tenant;
  spec.salt = binding.salt;
  spec.block_tokens = block_tokens;
  spec.layers = layout.layers;
  spec.layer_bytes = layout.layer_bytes;
  return spec;
}

class SingleGenerator final : public Generator {
 public:
  SingleGenerator(Model* model, const Tokenizer* tokenizer, StoreBinding binding, NamespaceSpec spec,
                  std::unique_ptr<DeviceTier> device)
      : model_(model),
        tokenizer_(tokenizer),
        binding_(std::move(binding)),
        block_tokens_(spec.block_tokens),
        cache_(binding_.store, std::move(spec)),
        device_(std::move(device)),
        logits_(model->config().vocab) {}

  absl::StatusOr<GenerateResult> Generate(std::span<const TokenId> prompt, const GenerateOptions& options,
                                          const GenerateObserver& observer) override;

 private:
  absl::Status CheckLengths(std::span<const TokenId> prompt, const GenerateOptions& options) const;
  // Leases what is stored of the prompt into `kv`; on any failure `kv` stays empty.
  void LoadPrefix(std::span<const TokenId> prompt, SequenceKv& kv, GenerateResult& result);
  absl::Status Prefill(std::span<const TokenId> prompt, SequenceKv& kv, const GenerateObserver& observer);
  absl::Status Decode(std::vector<TokenId>& sequence, TokenId next, const GenerateOptions& options, Sampler& sampler,
                      SequenceKv& kv, const GenerateObserver& observer, GenerateResult& result);
  void StorePrompt(std::span<const TokenId> sequence, SequenceKv& kv, GenerateResult& result);

  Model* model_;
  const Tokenizer* tokenizer_;
  StoreBinding binding_;
  std::uint32_t block_tokens_;
  PrefixCache cache_;
  std::unique_ptr<DeviceTier> device_;
  std::vector<float> logits_;  // [vocab]
};

absl::Status SingleGenerator::CheckLengths(std::span<const TokenId> prompt, const GenerateOptions& options) const {
  if (prompt.empty()) return absl::InvalidArgumentError("the prompt has no tokens; give at least one");
  const std::size_t context = model_->config().context;
  if (options.max_new_tokens >= context || prompt.size() > context - options.max_new_tokens) {
    return absl::InvalidArgumentError(
        fmt::format("prompt of {} tokens plus {} to generate exceeds the model's context of {}; shorten the prompt or "
                    "lower the number of tokens to generate",
                    prompt.size(), options.max_new_tokens, context));
  }
  return absl::OkStatus();
}

void SingleGenerator::LoadPrefix(std::span<const TokenId> prompt, SequenceKv& kv, GenerateResult& result) {
  Lease lease = cache_.AcquirePrefix(prompt, binding_.read);
  const auto tokens_from = [&, blocks = lease.blocks()](Tier tier) {
    const auto of_tier = [tier](const Lease::Block& block) { return block.source == tier; };
    return static_cast<std::size_t>(std::count_if(blocks.begin(), blocks.end(), of_tier)) * block_tokens_;
  };
  const std::size_t from_dram = tokens_from(Tier::kDram);
  const std::size_t from_nvme = tokens_from(Tier::kNvme);
  const std::size_t from_shared = tokens_from(Tier::kShared);
  absl::Status loaded = kv.Adopt(std::move(lease));
  if (loaded.ok()) loaded = kv.WaitLoaded();
  if (!loaded.ok()) {
    kv.Clear();
    result.store_error = std::string(loaded.message());
    return;
  }
  result.cached_tokens = kv.adopted_tokens();
  result.cached_from_dram = from_dram;
  result.cached_from_nvme = from_nvme;
  result.cached_from_shared = from_shared;
}

absl::Status SingleGenerator::Prefill(std::span<const TokenId> prompt, SequenceKv& kv,
                                      const GenerateObserver& observer) {
  std::size_t at = kv.adopted_tokens();
  observer.on_prefill(at, prompt.size());
  while (at < prompt.size()) {
    const std::size_t count = std::min(kPrefillStride, prompt.size() - at);
    const bool last = at + count == prompt.size();
    absl::Status computed = model_->Forward(prompt.subspan(at, count), at, kv.pages(),
                                            last ? std::span<float>(logits_) : std::span<float>());
    if (!computed.ok()) return computed;
    at += count;
    observer.on_prefill(at, prompt.size());
  }
  return absl::OkStatus();
}

absl::Status SingleGenerator::Decode(std::vector<TokenId>& sequence, TokenId next, const GenerateOptions& options,
                                     Sampler& sampler, SequenceKv& kv, const GenerateObserver& observer,
                                     GenerateResult& result) {
  Utf8Stream stream;
  auto emit = [&](std::string text) {
    if (text.empty()) return;
    observer.on_text(text);
    result.text += text;
  };
  result.finish_reason = "length";
  while (result.tokens.size() < options.max_new_tokens) {
    if (tokenizer_->IsEndOfGeneration(next)) {
      result.finish_reason = "stop";
      break;
    }
    result.tokens.push_back(next);
    emit(stream.Push(tokenizer_->Decode(std::span(&next, 1), /*with_special=*/false)));
    if (result.tokens.size() == options.max_new_tokens) break;
    absl::Status computed = model_->Forward(std::span(&next, 1), sequence.size(), kv.pages(), logits_);
    if (!computed.ok()) return computed;
    sequence.push_back(next);
    next = sampler.Sample(logits_);
  }
  emit(stream.Finish());
  return absl::OkStatus();
}

void SingleGenerator::StorePrompt(std::span<const TokenId> sequence, SequenceKv& kv, GenerateResult& result) {
  if (!binding_.write) return;
  const std::size_t known = result.cached_tokens / block_tokens_ + result.stored_blocks;
  result.stored_blocks += cache_.StoreBlocks(sequence, known, kv.pages(), *device_);
}

absl::StatusOr<GenerateResult> SingleGenerator::Generate(std::span<const TokenId> prompt,
                                                         const GenerateOptions& options,
                                                         const GenerateObserver& observer) {
  if (absl::Status checked = CheckLengths(prompt, options); !checked.ok()) return checked;
  GenerateResult result;
  result.prompt_tokens = prompt.size();
  const absl::Time start = absl::Now();

  SequenceKv kv(device_.get(), block_tokens_);
  LoadPrefix(prompt, kv, result);
  const absl::Time loaded = absl::Now();
  result.load = loaded - start;

  if (absl::Status grown = kv.Grow(prompt.size() + options.max_new_tokens); !grown.ok()) return grown;
  if (absl::Status computed = Prefill(prompt, kv, observer); !computed.ok()) return computed;
  Sampler sampler(options.sampling);
  const TokenId first = sampler.Sample(logits_);
  const absl::Time first_token = absl::Now();
  result.prefill = first_token - loaded;
  result.ttft = first_token - start;

  // The prompt's blocks go to the store once the first token is out: storing never delays it, and a request that
  // repeats the prompt while this one still decodes finds them.
  std::vector<TokenId> sequence(prompt.begin(), prompt.end());
  StorePrompt(sequence, kv, result);
  const absl::Time decode_start = absl::Now();
  if (absl::Status decoded = Decode(sequence, first, options, sampler, kv, observer, result); !decoded.ok()) {
    return decoded;
  }
  result.decode = absl::Now() - decode_start;
  StorePrompt(sequence, kv, result);  // the generated tokens' blocks: the next turn's prefix
  if (result.store_error.empty()) result.store_error = std::string(cache_.last_error().message());
  return result;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Generator>> Generator::Create(Model* model, const Tokenizer* tokenizer,
                                                             const Digest128& model_fingerprint, StoreBinding binding,
                                                             std::uint32_t block_tokens, std::size_t max_tokens,
                                                             std::unique_ptr<DeviceTier> device) {
  const KvLayout layout = model->kv_layout(block_tokens);
  NamespaceSpec spec = SpecOf(layout, model_fingerprint, binding, block_tokens);
  if (absl::Status valid = spec.Validate(); !valid.ok()) return valid;
  if (device == nullptr) {
    const std::size_t pages = (max_tokens + block_tokens - 1) / block_tokens;
    absl::StatusOr<std::unique_ptr<DeviceTier>> host = HostDeviceTier::Create(spec.payload_bytes(), pages);
    if (!host.ok()) return host.status();
    device = *std::move(host);
  }
  if (device->page_bytes() != spec.payload_bytes()) {
    return absl::InvalidArgumentError(fmt::format("the device's pages are {} bytes, a block of this model is {}",
                                                  device->page_bytes(), spec.payload_bytes()));
  }
  return std::make_unique<SingleGenerator>(model, tokenizer, std::move(binding), std::move(spec), std::move(device));
}

}  // namespace kvist::engine
