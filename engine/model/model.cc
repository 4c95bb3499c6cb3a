#include "engine/model/model.h"

#include <fmt/format.h>

#include <utility>

#include "engine/model/llama.h"

namespace kvist::engine {

absl::StatusOr<std::unique_ptr<Model>> Model::Load(std::shared_ptr<const GgufFile> file, const ModelOptions& options) {
  absl::StatusOr<std::string> architecture = file->String("general.architecture");
  if (!architecture.ok()) return absl::InvalidArgumentError(std::string(architecture.status().message()));
  if (*architecture == "llama") return LlamaModel::Load(std::move(file), options);
  return absl::InvalidArgumentError(
      fmt::format("architecture '{}' is not supported (supported: llama)", *architecture));
}

}  // namespace kvist::engine
