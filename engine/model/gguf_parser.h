// Fills a GgufFile from its mapping. Used once, by GgufFile::Open. Not thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "engine/model/gguf.h"
#include "engine/model/gguf_reader.h"

namespace kvist::engine {

class GgufParser {
 public:
  // `file->mapping_` must be set; it must outlive the parser.
  explicit GgufParser(GgufFile* file);

  // InvalidArgument: "byte N: fault".
  absl::Status Parse();

 private:
  // Where a tensor's record stands and what it said, until the data section's start is known.
  struct PendingTensor {
    std::size_t record_at = 0;
    std::uint64_t offset = 0;
    std::uint64_t bytes = 0;
  };

  void ParseHeader();
  void ParseMetadata();
  void ParseTensorInfo();
  void PlaceTensors();

  GgufValue ParseValue(std::uint32_t type, int depth, std::string_view key);
  GgufValue ParseArray(int depth, std::string_view key);
  void ParseElements(std::uint32_t type, std::uint64_t count, int depth, std::string_view key, GgufArray& array);
  bool Charge(std::uint64_t bytes, std::string_view key);  // against the metadata memory budget
  void ParseShape(GgufTensor& tensor, PendingTensor& pending);
  std::uint64_t Alignment();

  GgufFile* file_;
  GgufReader reader_;
  std::uint64_t tensor_count_ = 0;
  std::uint64_t metadata_count_ = 0;
  std::uint64_t metadata_memory_bytes_ = 0;
  std::vector<PendingTensor> pending_;
};

}  // namespace kvist::engine
