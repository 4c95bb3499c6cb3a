#include "engine/model/gguf_reader.h"

#include <fmt/format.h>

namespace kvist::engine {

bool GgufReader::Need(std::size_t count, std::string_view what) {
  if (!ok()) return false;
  if (count <= remaining()) return true;
  Fail(fmt::format("the file ends within {} ({} bytes needed, {} left): it is truncated or corrupted", what, count,
                   remaining()));
  return false;
}

std::string_view GgufReader::ReadString(std::uint64_t limit, std::string_view what) {
  const std::size_t start = position_;
  const auto length = Read<std::uint64_t>(what);
  if (!ok()) return {};
  if (length > limit) {
    FailAt(start, fmt::format("length of {} is {} bytes, more than the {} allowed", what, length, limit));
    return {};
  }
  if (length > remaining()) {
    FailAt(start, fmt::format("length of {} is {} bytes, but the file has only {} left: it is truncated or corrupted",
                              what, length, remaining()));
    return {};
  }
  const std::string_view text(reinterpret_cast<const char*>(bytes_.data() + position_),
                              static_cast<std::size_t>(length));
  position_ += text.size();
  return text;
}

void GgufReader::FailAt(std::size_t at, std::string_view fault) {
  if (!ok()) return;
  status_ = absl::InvalidArgumentError(fmt::format("byte {}: {}", at, fault));
}

}  // namespace kvist::engine
