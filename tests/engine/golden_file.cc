#include "tests/engine/golden_file.h"

#include <fstream>

namespace kvist::engine {

nlohmann::json ReadGolden(const std::string& name) {
  std::ifstream file(std::string(KVIST_SOURCE_DIR) + "/tests/reference/goldens/" + name);
  return nlohmann::json::parse(file, nullptr, /*allow_exceptions=*/false);
}

}  // namespace kvist::engine
