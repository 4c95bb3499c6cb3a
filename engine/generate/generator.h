// Generator: one prompt to one answer, with the prompt's KV taken from and given to a PrefixStore.
// The last prompt token is always computed, so a fully cached prompt still yields logits.
// A failing store costs time, never the answer: every store error is treated as a miss.
// Thread safety: one Generate at a time per Generator.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "cachestore/prefix_store.h"
#include "cachestore/tier/device_tier.h"
#include "engine/generate/sampler.h"
#include "engine/model/model.h"
#include "engine/text/tokenizer.h"

namespace kvist::engine {

struct StoreBinding {
  PrefixStore* store = nullptr;  // null: no cache
  std::string tenant;
  std::string salt;
  bool read = true;
  bool write = true;
};

struct GenerateOptions {
  std::size_t max_new_tokens = 64;
  SamplingOptions sampling;
};

struct GenerateResult {
  std::vector<TokenId> tokens;  // generated, without the end-of-generation token
  std::string text;
  std::string finish_reason;  // "stop" or "length"
  std::size_t prompt_tokens = 0;
  std::size_t cached_tokens = 0;       // of the prompt, not computed
  std::size_t cached_from_dram = 0;    // tokens
  std::size_t cached_from_nvme = 0;    // tokens
  std::size_t cached_from_shared = 0;  // tokens
  std::size_t stored_blocks = 0;       // newly given to the store
  std::string store_error;             // why the store was not used to the full; empty if it was
  absl::Duration load;                 // waiting for stored KV
  absl::Duration prefill;              // computing the rest of the prompt
  absl::Duration ttft;                 // from the call to the first token
  absl::Duration decode;               // after the first token
};

// Called with (prompt tokens done, prompt tokens in all) during prefill, and with text as it is generated.
struct GenerateObserver {
  absl::FunctionRef<void(std::size_t, std::size_t)> on_prefill;
  absl::FunctionRef<void(std::string_view)> on_text;
};

class Generator {
 public:
  // `model`, `tokenizer` and the store must outlive it. Namespace identity comes from the model's fingerprint and
  // layout. `device` holds the KV pages; null: host memory for `max_tokens` of context.
  // InvalidArgument: block_tokens not a power of two in 16..512, or a device with other pages than the model's.
  static absl::StatusOr<std::unique_ptr<Generator>> Create(Model* model, const Tokenizer* tokenizer,
                                                           const Digest128& model_fingerprint, StoreBinding binding,
                                                           std::uint32_t block_tokens, std::size_t max_tokens,
                                                           std::unique_ptr<DeviceTier> device = nullptr);
  virtual ~Generator() = default;

  // InvalidArgument: empty prompt, or prompt + max_new_tokens beyond the context (names both lengths).
  virtual absl::StatusOr<GenerateResult> Generate(std::span<const TokenId> prompt, const GenerateOptions& options,
                                                  const GenerateObserver& observer) = 0;
};

}  // namespace kvist::engine
