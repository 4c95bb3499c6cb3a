// Quantised blocks to floats, compiled once per target. Every product here is exact or rounded once, so each target
// (and kernels/cpu/reference.cc) yields the same bits.

#if defined(KVIST_KERNELS_CPU_DEQUANTIZE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef KVIST_KERNELS_CPU_DEQUANTIZE_INL_H_
#undef KVIST_KERNELS_CPU_DEQUANTIZE_INL_H_
#else
#define KVIST_KERNELS_CPU_DEQUANTIZE_INL_H_
#endif

#include <cstring>

#include "hwy/highway.h"
#include "kernels/cpu/panel-inl.h"
#include "kernels/float16.h"
#include "kernels/ops.h"

HWY_BEFORE_NAMESPACE();
namespace kvist::kernels::HWY_NAMESPACE {

using DI32 = hn::RebindToSigned<DF>;
using DU32 = hn::RebindToUnsigned<DF>;
using DU16 = hn::Rebind<std::uint16_t, DF>;
using DU8 = hn::Rebind<std::uint8_t, DF>;
using DI8 = hn::Rebind<std::int8_t, DF>;
using VU32 = hn::Vec<DU32>;
using VI32 = hn::Vec<DI32>;
// Lanes for runs of 16 elements that share a scale: every width here divides 16.
static_assert(16 % kLanes == 0);

HWY_INLINE float LoadHalf(const std::byte* p) {
  std::uint16_t half;
  std::memcpy(&half, p, sizeof(half));
  return F16ToF32(half);
}
HWY_INLINE const std::uint8_t* AsU8(const std::byte* p) { return reinterpret_cast<const std::uint8_t*>(p); }
HWY_INLINE VU32 LoadBytes(const std::byte* p) { return hn::PromoteTo(DU32(), hn::LoadU(DU8(), AsU8(p))); }
HWY_INLINE VF ToFloat(VU32 v) { return hn::ConvertTo(DF(), hn::BitCast(DI32(), v)); }

HWY_INLINE VF PromoteHalf(hn::Vec<DU16> half) {
#if HWY_TARGET == HWY_SSE4
  // No instruction for it, and Highway's stand-in turns infinity into a number. Shifted into place, the exponent is 112
  // short, which a multiplication mends, subnormals included; infinities and NaNs then get the top exponent.
  const VU32 bits = hn::PromoteTo(DU32(), half);
  const VU32 magnitude = hn::And(bits, hn::Set(DU32(), 0x7fffu));
  const VU32 sign = hn::ShiftLeft<16>(hn::Sub(bits, magnitude));
  const VF scaled = hn::Mul(hn::BitCast(DF(), hn::ShiftLeft<13>(magnitude)), hn::Set(DF(), 0x1p112f));
  const auto special = hn::Gt(hn::BitCast(DI32(), magnitude), hn::Set(DI32(), 0x7bff));
  const VI32 top = hn::IfThenElseZero(special, hn::Set(DI32(), 0x7f800000));
  return hn::BitCast(DF(), hn::Or(hn::Or(hn::BitCast(DU32(), scaled), sign), hn::BitCast(DU32(), top)));
#else
  return hn::PromoteTo(DF(), hn::BitCast(hn::Rebind<hwy::float16_t, DF>(), half));
#endif
}

HWY_INLINE void DequantizeF16(const std::byte* data, std::size_t n, float* out) {
  for (std::size_t i = 0; i < n; i += kLanes) {
    const auto half = hn::LoadU(DU16(), reinterpret_cast<const std::uint16_t*>(data + 2 * i));
    hn::StoreU(PromoteHalf(half), DF(), out + i);
  }
}

HWY_INLINE void DequantizeBF16(const std::byte* data, std::size_t n, float* out) {
  for (std::size_t i = 0; i < n; i += kLanes) {
    const auto half = hn::LoadU(DU16(), reinterpret_cast<const std::uint16_t*>(data + 2 * i));
    hn::StoreU(hn::BitCast(DF(), hn::ShiftLeft<16>(hn::PromoteTo(DU32(), half))), DF(), out + i);
  }
}

HWY_INLINE void DequantizeQ8_0(const std::byte* data, std::size_t n, float* out) {
  for (std::size_t b = 0; b < n; b += 32, data += 34, out += 32) {
    const VF scale = hn::Set(DF(), LoadHalf(data));
    for (std::size_t i = 0; i < 32; i += kLanes) {
      const auto q = hn::LoadU(DI8(), reinterpret_cast<const std::int8_t*>(data + 2 + i));
      const VF value = hn::ConvertTo(DF(), hn::PromoteTo(DI32(), q));
      hn::StoreU(hn::Mul(value, scale), DF(), out + i);
    }
  }
}

// 16 bytes of nibbles: out[0..15] from the low ones, out[16..31] from the high ones; value = nibble * scale + offset.
HWY_INLINE void Nibbles16(const std::byte* data, VF scale, VF offset, float* out) {
  const VU32 mask = hn::Set(DU32(), 15u);
  for (std::size_t i = 0; i < 16; i += kLanes) {
    const VU32 bytes = LoadBytes(data + i);
    hn::StoreU(hn::MulAdd(ToFloat(hn::And(bytes, mask)), scale, offset), DF(), out + i);
    hn::StoreU(hn::MulAdd(ToFloat(hn::ShiftRight<4>(bytes)), scale, offset), DF(), out + 16 + i);
  }
}

HWY_INLINE void DequantizeQ4_0(const std::byte* data, std::size_t n, float* out) {
  for (std::size_t b = 0; b < n; b += 32, data += 18, out += 32) {
    const float scale = LoadHalf(data);
    Nibbles16(data + 2, hn::Set(DF(), scale), hn::Set(DF(), -8.0f * scale), out);  // q * d - 8 * d, both exact
  }
}

HWY_INLINE void DequantizeQ4_1(const std::byte* data, std::size_t n, float* out) {
  for (std::size_t b = 0; b < n; b += 32, data += 20, out += 32) {
    Nibbles16(data + 4, hn::Set(DF(), LoadHalf(data)), hn::Set(DF(), LoadHalf(data + 2)), out);
  }
}

struct ScaleAndMin {
  float scale;
  float minimum;
};

// Eight 6-bit scales and minima in 12 bytes: the first four of each in the low bits of bytes 0..7, the others' low
// nibbles in bytes 8..11 and their upper two bits on top of bytes 0..7.
HWY_INLINE ScaleAndMin Q4KScale(const std::uint8_t* packed, std::size_t j) {
  if (j < 4) return {static_cast<float>(packed[j] & 63), static_cast<float>(packed[j + 4] & 63)};
  return {static_cast<float>((packed[j + 4] & 15) | (packed[j - 4] >> 6) << 4),
          static_cast<float>((packed[j + 4] >> 4) | (packed[j] >> 6) << 4)};
}

HWY_INLINE void DequantizeQ4_K(const std::byte* data, std::size_t n, float* out) {
  const VU32 mask = hn::Set(DU32(), 15u);
  for (std::size_t b = 0; b < n; b += 256, data += 144, out += 256) {
    const float d = LoadHalf(data);
    const float dmin = LoadHalf(data + 2);
    for (std::size_t j = 0; j < 8; j += 2) {
      const ScaleAndMin even = Q4KScale(AsU8(data + 4), j);
      const ScaleAndMin odd = Q4KScale(AsU8(data + 4), j + 1);
      const VF even_scale = hn::Set(DF(), d * even.scale);
      const VF even_offset = hn::Set(DF(), -(dmin * even.minimum));
      const VF odd_scale = hn::Set(DF(), d * odd.scale);
      const VF odd_offset = hn::Set(DF(), -(dmin * odd.minimum));
      for (std::size_t i = 0; i < 32; i += kLanes) {
        const VU32 bytes = LoadBytes(data + 16 + j * 16 + i);
        float* to = out + j * 32 + i;
        hn::StoreU(hn::MulAdd(ToFloat(hn::And(bytes, mask)), even_scale, even_offset), DF(), to);
        hn::StoreU(hn::MulAdd(ToFloat(hn::ShiftRight<4>(bytes)), odd_scale, odd_offset), DF(), to + 32);
      }
    }
  }
}

// One run of 16 elements; `low` holds their low 4 bits, `high` their upper 2.
HWY_INLINE void StoreQ6(VU32 low, VU32 high, float scale, float* out) {
  const VI32 q = hn::BitCast(DI32(), hn::Or(low, hn::ShiftLeft<4>(hn::And(high, hn::Set(DU32(), 3u)))));
  const VF value = hn::ConvertTo(DF(), hn::Sub(q, hn::Set(DI32(), 32)));
  hn::StoreU(hn::Mul(value, hn::Set(DF(), scale)), DF(), out);
}

HWY_INLINE void DequantizeQ6_K(const std::byte* data, std::size_t n, float* out) {
  const VU32 mask = hn::Set(DU32(), 15u);
  for (std::size_t b = 0; b < n; b += 256, data += 210, out += 256) {
    const float d = LoadHalf(data + 208);
    const auto* scales = reinterpret_cast<const std::int8_t*>(data + 192);
    for (std::size_t half = 0; half < 2; ++half) {
      const std::byte* low = data + half * 64;
      const std::byte* high = data + 128 + half * 32;
      for (std::size_t i = 0; i < 32; i += kLanes) {
        const std::int8_t* s = scales + half * 8 + i / 16;
        float* to = out + half * 128 + i;
        const VU32 first = LoadBytes(low + i);
        const VU32 second = LoadBytes(low + 32 + i);
        const VU32 upper = LoadBytes(high + i);
        StoreQ6(hn::And(first, mask), upper, d * s[0], to);
        StoreQ6(hn::And(second, mask), hn::ShiftRight<2>(upper), d * s[2], to + 32);
        StoreQ6(hn::ShiftRight<4>(first), hn::ShiftRight<4>(upper), d * s[4], to + 64);
        StoreQ6(hn::ShiftRight<4>(second), hn::ShiftRight<6>(upper), d * s[6], to + 96);
      }
    }
  }
}

// `n` elements from the start of a block; a multiple of the block, and of kLanes for the floats.
HWY_INLINE void DequantizeRun(TensorType type, const std::byte* data, std::size_t n, float* out) {
  switch (type) {
    case TensorType::kF32:
      std::memcpy(out, data, n * sizeof(float));
      return;
    case TensorType::kF16:
      return DequantizeF16(data, n, out);
    case TensorType::kBF16:
      return DequantizeBF16(data, n, out);
    case TensorType::kQ8_0:
      return DequantizeQ8_0(data, n, out);
    case TensorType::kQ4_0:
      return DequantizeQ4_0(data, n, out);
    case TensorType::kQ4_1:
      return DequantizeQ4_1(data, n, out);
    case TensorType::kQ4_K:
      return DequantizeQ4_K(data, n, out);
    case TensorType::kQ6_K:
      return DequantizeQ6_K(data, n, out);
  }
}

// As DequantizeRun, for floats of any count too.
HWY_INLINE void DequantizeAny(TensorType type, const std::byte* data, std::size_t n, float* out) {
  const std::size_t whole = InfoOf(type).block_elements > 1 ? n : n / 16 * 16;
  DequantizeRun(type, data, whole, out);
  for (std::size_t i = whole; i < n; ++i) {
    if (type == TensorType::kF32) {
      std::memcpy(out + i, data + i * sizeof(float), sizeof(float));
      continue;
    }
    std::uint16_t half;
    std::memcpy(&half, data + i * sizeof(half), sizeof(half));
    out[i] = type == TensorType::kF16 ? F16ToF32(half) : BF16ToF32(half);
  }
}

}  // namespace kvist::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
