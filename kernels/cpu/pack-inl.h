// Weight panels for MatMul, compiled once per target: 32 weight rows by up to 256 columns, dequantised and transposed
// so that neighbouring lanes hold neighbouring rows.

#if defined(KVIST_KERNELS_CPU_PACK_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef KVIST_KERNELS_CPU_PACK_INL_H_
#undef KVIST_KERNELS_CPU_PACK_INL_H_
#else
#define KVIST_KERNELS_CPU_PACK_INL_H_
#endif

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "hwy/highway.h"
#include "kernels/cpu/dequantize-inl.h"
#include "kernels/cpu/panel-inl.h"
#include "kernels/ops.h"

HWY_BEFORE_NAMESPACE();
namespace kvist::kernels::HWY_NAMESPACE {

// Columns of a panel: the largest quantisation block, so that every panel starts at one; 16 weight rows of it are
// 16 KiB of floats, which leaves room in the first-level cache for the tokens.
inline constexpr std::size_t kPanelDepth = 256;
inline constexpr std::size_t kBlockPanels = kMatMulRowBlock / kPanelColumns;
static_assert(kMatMulRowBlock % kPanelColumns == 0 && kPanelColumns % 4 == 0);

// Panel layout: [kBlockPanels][kPanelDepth][kPanelColumns].
struct Panel {
  HWY_ALIGN float values[kMatMulRowBlock * kPanelDepth];
};

HWY_INLINE float* PanelAt(Panel& panel, std::size_t row, std::size_t k) {
  return panel.values + (row / kPanelColumns * kPanelDepth + k) * kPanelColumns + row % kPanelColumns;
}

// Four dequantised rows into columns row..row+3 of the panel.
HWY_INLINE void Transpose4(const float* rows /* [4][kPanelDepth] */, std::size_t depth, Panel& panel, std::size_t row) {
  const hn::FixedTag<float, 4> d4;
  const hn::FixedTag<double, 2> d2;
  for (std::size_t k = 0; k < depth; k += 4) {
    const auto a = hn::LoadU(d4, rows + k);
    const auto b = hn::LoadU(d4, rows + kPanelDepth + k);
    const auto c = hn::LoadU(d4, rows + 2 * kPanelDepth + k);
    const auto e = hn::LoadU(d4, rows + 3 * kPanelDepth + k);
    const auto ab_low = hn::BitCast(d2, hn::InterleaveLower(d4, a, b));
    const auto ab_high = hn::BitCast(d2, hn::InterleaveUpper(d4, a, b));
    const auto ce_low = hn::BitCast(d2, hn::InterleaveLower(d4, c, e));
    const auto ce_high = hn::BitCast(d2, hn::InterleaveUpper(d4, c, e));
    float* to = PanelAt(panel, row, k);
    hn::StoreU(hn::BitCast(d4, hn::InterleaveLower(d2, ab_low, ce_low)), d4, to);
    hn::StoreU(hn::BitCast(d4, hn::InterleaveUpper(d2, ab_low, ce_low)), d4, to + kPanelColumns);
    hn::StoreU(hn::BitCast(d4, hn::InterleaveLower(d2, ab_high, ce_high)), d4, to + 2 * kPanelColumns);
    hn::StoreU(hn::BitCast(d4, hn::InterleaveUpper(d2, ab_high, ce_high)), d4, to + 3 * kPanelColumns);
  }
}

// Any type, any number of rows: each row to floats, then transposed. Fills the panel with rows [row, row + rows)
// of w, columns [k0, k0 + depth); missing rows are zero.
HWY_INLINE void PackRows(const Matrix& w, std::size_t row, std::size_t rows, std::size_t k0, std::size_t depth,
                         Panel& panel) {
  const TensorTypeInfo& info = InfoOf(w.type);
  const std::size_t row_bytes = w.row_bytes();
  const std::byte* from = w.data + row * row_bytes + k0 / info.block_elements * info.block_bytes;
  HWY_ALIGN float four[4 * kPanelDepth];
  for (std::size_t r = 0; r < kMatMulRowBlock; r += 4) {
    for (std::size_t i = 0; i < 4; ++i) {
      float* to = four + i * kPanelDepth;
      if (r + i < rows) {
        DequantizeRun(w.type, from + (r + i) * row_bytes, depth, to);
      } else {
        std::memset(to, 0, depth * sizeof(float));
      }
    }
    Transpose4(four, depth, panel, r);
  }
}

// The common 32-element types are transposed while still bytes, four times fewer than floats: decoding spends most of
// its time here.

// 16 runs of 16 bytes, `stride` apart, to columns: out[i * kMatMulRowBlock + r] = byte i of run r.
HWY_INLINE void TransposeBytes(const std::byte* runs, std::size_t stride, std::uint8_t* out) {
  const hn::FixedTag<std::uint8_t, 16> d;
  hn::Vec<decltype(d)> a[16];
  hn::Vec<decltype(d)> b[16];
  HWY_UNROLL(16)
  for (std::size_t i = 0; i < 16; ++i) a[i] = hn::LoadU(d, AsU8(runs + i * stride));
  // Each round moves the top bit of the run's index to the bottom of the byte's, and the reverse: four swap them.
  HWY_UNROLL(2)
  for (std::size_t twice = 0; twice < 2; ++twice) {
    HWY_UNROLL(8)
    for (std::size_t i = 0; i < 8; ++i) {
      b[2 * i] = hn::InterleaveLower(d, a[i], a[i + 8]);
      b[2 * i + 1] = hn::InterleaveUpper(d, a[i], a[i + 8]);
    }
    HWY_UNROLL(8)
    for (std::size_t i = 0; i < 8; ++i) {
      a[2 * i] = hn::InterleaveLower(d, b[i], b[i + 8]);
      a[2 * i + 1] = hn::InterleaveUpper(d, b[i], b[i + 8]);
    }
  }
  HWY_UNROLL(16)
  for (std::size_t i = 0; i < 16; ++i) hn::StoreU(a[i], d, out + i * kMatMulRowBlock);
}

// The F16 at `from` in each of 32 rows, as floats.
HWY_INLINE void GatherHalves(const std::byte* from, std::size_t row_bytes, float* out /* [kMatMulRowBlock] */) {
  HWY_ALIGN std::byte halves[2 * kMatMulRowBlock];
  for (std::size_t r = 0; r < kMatMulRowBlock; ++r) std::memcpy(halves + 2 * r, from + r * row_bytes, 2);
  DequantizeF16(halves, kMatMulRowBlock, out);
}

HWY_INLINE bool HasByteColumns(TensorType type) {
  return type == TensorType::kQ4_0 || type == TensorType::kQ4_1 || type == TensorType::kQ8_0;
}

// One Q4_0 or Q4_1 block of each of 32 rows: byte i of all rows together holds columns i (low) and 16 + i (high).
struct NibbleColumns {
  HWY_ALIGN float scale[kMatMulRowBlock];
  HWY_ALIGN float offset[kMatMulRowBlock];
  HWY_ALIGN std::uint8_t bytes[16 * kMatMulRowBlock];
};

HWY_INLINE void LoadNibbles(const std::byte* blocks, std::size_t row_bytes, bool has_offset, NibbleColumns& out) {
  const std::size_t header = has_offset ? 4 : 2;
  GatherHalves(blocks, row_bytes, out.scale);
  if (has_offset) {
    GatherHalves(blocks + 2, row_bytes, out.offset);
  } else {
    for (std::size_t r = 0; r < kMatMulRowBlock; ++r) out.offset[r] = -8.0f * out.scale[r];
  }
  TransposeBytes(blocks + header, row_bytes, out.bytes);
  TransposeBytes(blocks + header + 16 * row_bytes, row_bytes, out.bytes + 16);
}

// One Q8_0 block of each of 32 rows.
struct ByteColumns {
  HWY_ALIGN float scale[kMatMulRowBlock];
  HWY_ALIGN std::uint8_t bytes[32 * kMatMulRowBlock];
};

HWY_INLINE void LoadBytes32(const std::byte* blocks, std::size_t row_bytes, ByteColumns& out) {
  GatherHalves(blocks, row_bytes, out.scale);
  for (std::size_t half = 0; half < 32; half += 16) {
    std::uint8_t* bytes = out.bytes + half * kMatMulRowBlock;
    TransposeBytes(blocks + 2 + half, row_bytes, bytes);
    TransposeBytes(blocks + 2 + half + 16 * row_bytes, row_bytes, bytes + 16);
  }
}

HWY_INLINE void StoreColumn(VF value, Panel& panel, std::size_t row, std::size_t k) {
  hn::Store(value, DF(), PanelAt(panel, row, k));
}

// Columns k..k+31 of the panel.
HWY_INLINE void PackNibbles(const std::byte* blocks, std::size_t row_bytes, bool has_offset, std::size_t k,
                            Panel& panel) {
  NibbleColumns columns;
  LoadNibbles(blocks, row_bytes, has_offset, columns);
  const VU32 mask = hn::Set(DU32(), 15u);
  for (std::size_t r = 0; r < kMatMulRowBlock; r += kLanes) {
    const VF scale = hn::Load(DF(), columns.scale + r);
    const VF offset = hn::Load(DF(), columns.offset + r);
    for (std::size_t i = 0; i < 16; ++i) {
      const VU32 pair = hn::PromoteTo(DU32(), hn::LoadU(DU8(), columns.bytes + i * kMatMulRowBlock + r));
      StoreColumn(hn::MulAdd(ToFloat(hn::And(pair, mask)), scale, offset), panel, r, k + i);
      StoreColumn(hn::MulAdd(ToFloat(hn::ShiftRight<4>(pair)), scale, offset), panel, r, k + 16 + i);
    }
  }
}

HWY_INLINE void PackBytes(const std::byte* blocks, std::size_t row_bytes, std::size_t k, Panel& panel) {
  ByteColumns columns;
  LoadBytes32(blocks, row_bytes, columns);
  for (std::size_t r = 0; r < kMatMulRowBlock; r += kLanes) {
    const VF scale = hn::Load(DF(), columns.scale + r);
    for (std::size_t i = 0; i < 32; ++i) {
      const auto q = hn::LoadU(DI8(), reinterpret_cast<const std::int8_t*>(columns.bytes + i * kMatMulRowBlock + r));
      StoreColumn(hn::Mul(hn::ConvertTo(DF(), hn::PromoteTo(DI32(), q)), scale), panel, r, k + i);
    }
  }
}

// As PackRows, by the fastest way there is for the type.
HWY_INLINE void Pack(const Matrix& w, std::size_t row, std::size_t rows, std::size_t k0, std::size_t depth,
                     Panel& panel) {
  if (rows != kMatMulRowBlock || !HasByteColumns(w.type)) return PackRows(w, row, rows, k0, depth, panel);
  const std::size_t row_bytes = w.row_bytes();
  const std::size_t block_bytes = InfoOf(w.type).block_bytes;
  const std::byte* from = w.data + row * row_bytes + k0 / 32 * block_bytes;
  for (std::size_t k = 0; k < depth; k += 32, from += block_bytes) {
    if (w.type == TensorType::kQ8_0) {
      PackBytes(from, row_bytes, k, panel);
    } else {
      PackNibbles(from, row_bytes, w.type == TensorType::kQ4_1, k, panel);
    }
  }
}

}  // namespace kvist::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
