// kvist generate: one prompt to one answer, its KV taken from and given to a store.
#include <cstdint>
#include <cstdio>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "cachestore/await.h"
#include "cachestore/io/clock.h"
#include "cachestore/prefix_store.h"
#include "engine/generate/generator.h"
#include "engine/model/gguf.h"
#include "engine/model/model.h"
#include "engine/text/chat_template.h"
#include "engine/text/tokenizer.h"
#include "fmt/format.h"
#include "tools/cli/command.h"
#include "tools/cli/generate_report.h"
#include "tools/cli/progress.h"
#include "tools/cli/prompt_source.h"
#include "tools/cli/store_flag.h"

namespace kvist::cli {
namespace {

// An embedded store is closed with the process: what waits for the disk gets this long.
constexpr absl::Duration kFlushTimeout = absl::Seconds(60);

struct GenerateFlags {
  std::string model;
  std::string prompt;
  std::string prompt_file;
  bool chat = false;
  std::string system;
  StoreFlag store;
  std::string tenant;
  std::string salt;
  bool no_cache_read = false;
  bool no_cache_write = false;
  engine::GenerateOptions generate;
  std::uint32_t block_tokens = 64;
  std::size_t threads = 0;
  bool json = false;
  bool progress = false;
};

// All that is made of the model file. `model` and `tokenizer` are what the generator points into.
struct LoadedModel {
  std::shared_ptr<const engine::GgufFile> file;
  std::unique_ptr<engine::Tokenizer> tokenizer;
  std::unique_ptr<engine::Model> model;
};

absl::StatusOr<LoadedModel> LoadModel(const GenerateFlags& flags) {
  LoadedModel loaded;
  auto file = engine::GgufFile::Open(flags.model);
  if (!file.ok()) return file.status();
  loaded.file = *std::move(file);
  auto tokenizer = engine::Tokenizer::FromGguf(*loaded.file);
  if (!tokenizer.ok()) return tokenizer.status();
  loaded.tokenizer = *std::move(tokenizer);
  auto model = engine::Model::Load(loaded.file, engine::ModelOptions{.threads = flags.threads});
  if (!model.ok()) return model.status();
  loaded.model = *std::move(model);
  return loaded;
}

// The prompt as the model is to see it.
absl::StatusOr<std::string> PromptText(const GenerateFlags& flags, const engine::GgufFile& file) {
  std::string text = flags.prompt;
  if (!flags.prompt_file.empty()) {
    auto read = ReadPrompt(flags.prompt_file);
    if (!read.ok()) return read.status();
    text = *std::move(read);
  }
  if (!flags.chat) return text;
  const auto chat = engine::ChatTemplate::FromGguf(file);
  if (!chat.ok()) return chat.status();
  std::vector<engine::ChatMessage> messages;
  if (!flags.system.empty()) messages.push_back({"system", flags.system});
  messages.push_back({"user", std::move(text)});
  return chat->Render(messages);
}

absl::Status CheckFits(std::size_t prompt_tokens, std::size_t new_tokens, const engine::ModelConfig& config) {
  if (prompt_tokens == 0) return absl::InvalidArgumentError("the prompt is empty. Give one with -p TEXT or -f FILE.");
  if (prompt_tokens + new_tokens <= config.context) return absl::OkStatus();
  return absl::InvalidArgumentError(
      fmt::format("the prompt has {} tokens, and with --max-tokens {} exceeds the model's context of {}. "
                  "Shorten the prompt or lower --max-tokens.",
                  prompt_tokens, new_tokens, config.context));
}

// DRAM for an embedded store: this one sequence, and as much again for blocks that are on their way to the disk.
std::uint64_t EmbeddedDramBytes(const engine::Model& model, std::size_t block_tokens, std::size_t tokens) {
  constexpr std::uint64_t kSpareBytes = std::uint64_t{64} << 20;  // headers, and room for blocks of a few MiB
  const engine::KvLayout layout = model.kv_layout(block_tokens);
  const std::uint64_t blocks = (tokens + block_tokens - 1) / block_tokens;
  return 2 * blocks * layout.layers * layout.layer_bytes + kSpareBytes;
}

// Without this an embedded store's newest blocks would be gone with the process.
void FlushEmbedded(const GenerateFlags& flags, PrefixStore* store) {
  if (store == nullptr || !flags.store.embedded() || flags.no_cache_write) return;
  CallOptions options;
  options.timeout = kFlushTimeout;
  const absl::Status flushed = AwaitStatus([&](DoneStatus done) { store->Flush(options, std::move(done)); });
  if (!flushed.ok()) fmt::print(stderr, "kvist: not all was stored: {}\n", std::string(flushed.message()));
}

absl::StatusOr<engine::GenerateResult> Answer(const GenerateFlags& flags, const LoadedModel& loaded,
                                              const std::vector<TokenId>& prompt, PrefixStore* store,
                                              Progress& progress) {
  const engine::StoreBinding binding{.store = store,
                                     .tenant = flags.tenant,
                                     .salt = flags.salt,
                                     .read = !flags.no_cache_read,
                                     .write = !flags.no_cache_write};
  auto generator =
      engine::Generator::Create(loaded.model.get(), loaded.tokenizer.get(), loaded.file->Fingerprint(), binding,
                                flags.block_tokens, prompt.size() + flags.generate.max_new_tokens);
  if (!generator.ok()) return generator.status();
  const auto on_prefill = [&](std::size_t done, std::size_t total) {
    progress.Update("reading the prompt", done, total);
  };
  const auto on_text = [&](std::string_view text) {
    progress.Clear();
    if (flags.json) return;
    std::fwrite(text.data(), 1, text.size(), stdout);
    std::fflush(stdout);
  };
  progress.Clear();
  auto result = (*generator)->Generate(prompt, flags.generate, {.on_prefill = on_prefill, .on_text = on_text});
  progress.Clear();
  return result;
}

Outcome Run(const GenerateFlags& flags) {
  if (!flags.system.empty() && !flags.chat) {
    return Outcome::Failure(ExitCode::kUsage, "--system is part of a chat. Add --chat.");
  }
  const SystemClock clock;
  Progress progress(stderr, flags.progress, &clock);
  progress.Say("loading the model");
  auto loaded = LoadModel(flags);
  if (!loaded.ok()) return Outcome::Failure(ExitCode::kModel, loaded.status());
  const auto text = PromptText(flags, *loaded->file);
  if (!text.ok()) return Outcome::Failure(ExitCode::kUsage, text.status());
  const std::vector<TokenId> prompt = loaded->tokenizer->Encode(*text, {});
  const absl::Status fits = CheckFits(prompt.size(), flags.generate.max_new_tokens, loaded->model->config());
  if (!fits.ok()) return Outcome::Failure(ExitCode::kUsage, fits);

  // A store that is named and cannot be had is an error here: otherwise a typing mistake would look like a slow cache.
  // One that fails later costs time only.
  std::unique_ptr<PrefixStore> store;
  if (!flags.store.url.empty() && flags.store.url != "none") {
    auto opened =
        Open(flags.store, /*existing=*/false,
             EmbeddedDramBytes(*loaded->model, flags.block_tokens, prompt.size() + flags.generate.max_new_tokens));
    if (!opened.ok()) return Outcome::Failure(ExitCode::kStore, opened.status());
    store = *std::move(opened);
  }
  const auto result = Answer(flags, *loaded, prompt, store.get(), progress);
  if (!result.ok()) return Outcome::Failure(ExitCode::kFailed, result.status());
  FlushEmbedded(flags, store.get());
  if (flags.json) {
    fmt::print("{}\n", ToJson(*result, flags.model));
  } else {
    fmt::print("\n");
    std::fflush(stdout);
    fmt::print(stderr, "{}\n", SummaryLine(*result));
    if (!result->store_error.empty()) fmt::print(stderr, "kvist: store: {}\n", result->store_error);
  }
  return Outcome::Ok();
}

void AddCacheFlags(CLI::App& app, GenerateFlags& flags) {
  flags.store.Add(app, /*required=*/false);
  app.add_option("--tenant", flags.tenant, "Whose cache this is; tenants share nothing")->type_name("NAME");
  app.add_option("--salt", flags.salt, "Further isolation within a tenant")->type_name("TEXT");
  app.add_option("--block-tokens", flags.block_tokens, "Tokens per stored block")
      ->check(CLI::IsMember({16, 32, 64, 128, 256, 512}))
      ->capture_default_str();
  app.add_flag("--no-cache-read", flags.no_cache_read, "Compute all, even what is stored");
  app.add_flag("--no-cache-write", flags.no_cache_write, "Store nothing");
}

}  // namespace

Command AddGenerate(CLI::App& parent) {
  auto flags = std::make_shared<GenerateFlags>();
  CLI::App* app = parent.add_subcommand("generate", "Answer one prompt; the text streams to stdout");
  app->add_option("-m,--model", flags->model, "A GGUF file")->required()->type_name("FILE");
  auto* prompt = app->add_option_group("prompt");
  prompt->add_option("-p,--prompt", flags->prompt, "The prompt itself")->type_name("TEXT");
  prompt->add_option("-f,--prompt-file", flags->prompt_file, "A file that holds it, or - for stdin")->type_name("FILE");
  prompt->require_option(1);
  app->add_flag("--chat", flags->chat, "The prompt is a user's message: wrap it in the model's chat template");
  app->add_option("--system", flags->system, "The chat's system message")->type_name("TEXT");
  AddCacheFlags(*app, *flags);
  app->add_option("--max-tokens", flags->generate.max_new_tokens, "Length of the answer at most")
      ->check(CLI::Range(std::size_t{1}, std::size_t{1} << 20))
      ->capture_default_str();
  auto& sampling = flags->generate.sampling;
  app->add_option("--temperature", sampling.temperature, "0: always the likeliest token")
      ->check(CLI::Range(0.0, 100.0))
      ->capture_default_str();
  app->add_option("--top-p", sampling.top_p, "Sample from the likeliest tokens that have this probability together")
      ->check(CLI::Range(0.0, 1.0))
      ->capture_default_str();
  app->add_option("--seed", sampling.seed, "Equal seeds give equal answers")->capture_default_str();
  app->add_option("--threads", flags->threads, "0: as many as the machine has cores")
      ->check(CLI::Range(0, 1024))
      ->capture_default_str();
  app->add_flag("--json", flags->json, "One JSON object on stdout, at the end");
  app->add_flag("--progress", flags->progress, "Show progress even where stderr is no terminal");
  return {app, [flags] { return Run(*flags); }};
}

}  // namespace kvist::cli
