#include "tests/engine/real_model.h"

#include <cstdlib>
#include <filesystem>
#include <string_view>
#include <system_error>

namespace kvist::engine {
namespace {

bool IsRealModel(const std::filesystem::path& path) {
  std::error_code error;
  return std::filesystem::file_size(path, error) == kRealModelBytes && !error;
}

}  // namespace

std::string RealModelPath() {
  const char* const chosen = std::getenv("KVIST_MODEL");
  if (chosen != nullptr && IsRealModel(chosen)) return chosen;
  const std::filesystem::path fetched =
      std::filesystem::path(KVIST_SOURCE_DIR) / "models" / "SmolLM2-135M-Instruct.Q4_1.gguf";
  return IsRealModel(fetched) ? fetched.string() : std::string();
}

bool MayRunWithoutModel() {
  const char* const allowed = std::getenv("KVIST_ALLOW_NO_MODEL");
  return allowed != nullptr && std::string_view(allowed) == "1";
}

}  // namespace kvist::engine
