#include "cachestore/index/index_records.h"

#include <concepts>
#include <utility>

#include "fmt/format.h"

namespace kvist {
namespace {

constexpr std::uint8_t kVersion = 1;
// Of namespaces; version 1 had no dropped_through.
constexpr std::uint8_t kNamespaceVersion = 2;

class Packer {
 public:
  template <std::integral T>
  Packer& Add(T value) {
    const auto wide = static_cast<std::uint64_t>(value);
    for (std::size_t i = 0; i < sizeof(T); ++i) bytes_.push_back(static_cast<char>(wide >> (8 * i)));
    return *this;
  }
  Packer& Add(const Digest128& d) { return Add(d.hi).Add(d.lo); }
  Packer& Add(std::string_view text) {
    bytes_.append(text);
    return *this;
  }
  std::string Take() { return std::move(bytes_); }

 private:
  std::string bytes_;
};

// Reads fields in order; `ok` turns false for good at the first that is not there.
class Unpacker {
 public:
  explicit Unpacker(std::string_view bytes) : bytes_(bytes) {}

  template <std::integral T>
  T Get() {
    if (bytes_.size() < sizeof(T)) {
      ok_ = false;
      bytes_ = {};
      return 0;
    }
    std::uint64_t wide = 0;
    for (std::size_t i = 0; i < sizeof(T); ++i) {
      wide |= std::uint64_t{static_cast<unsigned char>(bytes_[i])} << (8 * i);
    }
    bytes_.remove_prefix(sizeof(T));
    return static_cast<T>(wide);
  }
  Digest128 GetDigest() {
    Digest128 d;
    d.hi = Get<std::uint64_t>();
    d.lo = Get<std::uint64_t>();
    return d;
  }
  std::string_view Rest() { return std::exchange(bytes_, {}); }
  bool Version() { return Get<std::uint8_t>() == kVersion && ok_; }
  bool Done() const { return ok_ && bytes_.empty(); }
  bool ok() const { return ok_; }

 private:
  std::string_view bytes_;
  bool ok_ = true;
};

absl::Status Malformed(std::string_view what, std::string_view bytes) {
  return absl::DataLossError(fmt::format("index: a {} entry of {} bytes is not readable", what, bytes.size()));
}

}  // namespace

std::string EncodeDigest(const Digest128& digest) { return Packer().Add(digest).Take(); }
std::string EncodeU64(std::uint64_t value) { return Packer().Add(value).Take(); }

std::string EncodeBlockEntry(const BlockEntry& e) {
  return Packer()
      .Add(kVersion)
      .Add(e.ns)
      .Add(e.parent)
      .Add(e.extent.segment)
      .Add(e.extent.generation)
      .Add(e.extent.offset)
      .Add(e.record_bytes)
      .Add(e.expires_unix_s)
      .Add(e.used)
      .Add(e.pins)
      .Take();
}

std::string EncodeNamespaceEntry(const NamespaceEntry& e) {
  const std::uint8_t has_ttl = e.ttl ? 1 : 0;
  const std::int64_t ttl_ms = e.ttl ? absl::ToInt64Milliseconds(*e.ttl) : 0;
  return Packer().Add(kNamespaceVersion).Add(has_ttl).Add(ttl_ms).Add(e.dropped_through).Add(e.spec.Canonical()).Take();
}

std::string EncodeSegmentEntry(const SegmentEntry& e) {
  return Packer().Add(kVersion).Add(e.generation).Add(e.bytes).Take();
}

absl::StatusOr<Digest128> DecodeDigest(std::string_view bytes) {
  Unpacker in(bytes);
  const Digest128 digest = in.GetDigest();
  if (!in.Done()) return Malformed("key", bytes);
  return digest;
}

absl::StatusOr<std::uint64_t> DecodeU64(std::string_view bytes) {
  Unpacker in(bytes);
  const auto value = in.Get<std::uint64_t>();
  if (!in.Done()) return Malformed("number", bytes);
  return value;
}

absl::StatusOr<BlockEntry> DecodeBlockEntry(std::string_view bytes) {
  Unpacker in(bytes);
  if (!in.Version()) return Malformed("block", bytes);
  BlockEntry e;
  e.ns = in.GetDigest();
  e.parent = in.GetDigest();
  e.extent.segment = in.Get<std::uint64_t>();
  e.extent.generation = in.Get<std::uint64_t>();
  e.extent.offset = in.Get<std::uint64_t>();
  e.record_bytes = in.Get<std::uint64_t>();
  e.expires_unix_s = in.Get<std::int64_t>();
  e.used = in.Get<std::uint64_t>();
  e.pins = in.Get<std::uint32_t>();
  if (!in.Done()) return Malformed("block", bytes);
  return e;
}

absl::StatusOr<NamespaceEntry> DecodeNamespaceEntry(std::string_view bytes) {
  Unpacker in(bytes);
  const auto version = in.Get<std::uint8_t>();
  if (version != 1 && version != kNamespaceVersion) return Malformed("namespace", bytes);
  NamespaceEntry e;
  const auto has_ttl = in.Get<std::uint8_t>();
  const auto ttl_ms = in.Get<std::int64_t>();
  if (version == kNamespaceVersion) e.dropped_through = in.Get<std::uint64_t>();
  if (!in.ok() || has_ttl > 1) return Malformed("namespace", bytes);
  if (has_ttl == 1) e.ttl = absl::Milliseconds(ttl_ms);
  absl::StatusOr<NamespaceSpec> spec = NamespaceSpec::FromCanonical(in.Rest());
  if (!spec.ok()) return spec.status();
  e.spec = *std::move(spec);
  return e;
}

absl::StatusOr<SegmentEntry> DecodeSegmentEntry(std::string_view bytes) {
  Unpacker in(bytes);
  if (!in.Version()) return Malformed("segment", bytes);
  SegmentEntry e;
  e.generation = in.Get<std::uint64_t>();
  e.bytes = in.Get<std::uint64_t>();
  if (!in.Done()) return Malformed("segment", bytes);
  return e;
}

}  // namespace kvist
