// Reads tests/reference/goldens. Any thread.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace kvist::engine {

// Parsed; a discarded value if the file is absent or no JSON.
nlohmann::json ReadGolden(const std::string& name);

}  // namespace kvist::engine
