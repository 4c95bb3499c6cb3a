#include "tests/engine/tiny_gguf.h"

#include <fmt/format.h>

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace kvist::engine {
namespace {

using kernels::TensorType;

// "left right" pairs over the byte alphabet, in rank order; each result becomes a token.
// Ġ (U+0120) stands for the space, Ċ (U+010A) for the newline.
constexpr std::string_view kMerges[] = {
    "Ġ t",    "Ġ a",   "h e",    "i n",  "r e",   "o n",    "Ġt he",   "e r",  "Ġ s",  "a t",  "Ġ Ġ",  "ĠĠ ĠĠ",
    "o r",    "e n",   "a n",    "Ġ w",  "Ġ c",   "i s",    "Ġ o",     "Ġo f", "i t",  "Ġ in", "Ġa n", "Ġan d",
    "in g",   "e s",   "Ġ b",    "Ġ m",  "o u",   "l l",    "Ċ Ċ",     "Ġ p",  "a r",  "Ġ d",  "e d",  "u s",
    "Ġ h",    "s t",   "l e",    "i on", "t ion", "r o",    "Ġ f",     "v e",  "Ġt o", "Ġ T",  "T he", "Ġ he",
    "Ġhe ll", "he ll", "hell o", "w or", "Ġw or", "Ġwor l", "Ġworl d", "Ġ l",  "Ġ n",  "c t"};

constexpr std::string_view kChatTemplateHead =
    "{% for message in messages %}{% if loop.first and messages[0]['role'] != 'system' %}"
    "{{ '<|im_start|>system\n";
constexpr std::string_view kChatTemplateTail =
    "<|im_end|>\n' }}{% endif %}{{'<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + "
    "'\n'}}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}";

void AppendUtf8(std::uint32_t code, std::string& out) {  // below U+0800 only
  if (code < 0x80) {
    out += static_cast<char>(code);
  } else {
    out += static_cast<char>(0xc0 | (code >> 6));
    out += static_cast<char>(0x80 | (code & 0x3f));
  }
}

// GPT-2's printable stand-in for a byte: itself where printable, else U+0100 upwards in order.
std::string ByteAsText(unsigned byte) {
  const auto printable = [](unsigned b) { return (b >= 33 && b <= 126) || (b >= 161 && b <= 172) || b >= 174; };
  std::uint32_t code = byte;
  if (!printable(byte)) {
    code = 0x100;
    for (unsigned b = 0; b < byte; ++b) code += printable(b) ? 0 : 1;
  }
  std::string out;
  AppendUtf8(code, out);
  return out;
}

struct Vocabulary {
  std::vector<std::string> tokens;
  std::vector<std::int32_t> types;
  std::vector<std::string> merges;
};

Vocabulary MakeVocabulary(const TinyGgufOptions& options) {
  Vocabulary v;
  v.tokens = {"<|endoftext|>", "<|im_start|>", "<|im_end|>"};
  v.types.assign(3, kTokenControl);
  for (unsigned byte = 0; byte < 256; ++byte) v.tokens.push_back(ByteAsText(byte));
  for (const std::string_view merge : kMerges) {
    v.merges.emplace_back(merge);
    std::string joined(merge);
    joined.erase(joined.find(' '), 1);
    v.tokens.push_back(joined);
  }
  v.types.resize(v.tokens.size(), kTokenNormal);
  for (const auto& [text, type] : options.extra_tokens) {
    v.tokens.push_back(text);
    v.types.push_back(type);
  }
  return v;
}

// SplitMix64: small, and the same everywhere (the standard distributions are not).
class Random {
 public:
  explicit Random(std::uint64_t seed) : state_(seed) {}
  std::uint64_t Next() {
    std::uint64_t z = (state_ += 0x9e3779b97f4a7c15ull);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
    return z ^ (z >> 31);
  }
  // Uniform over (-1, 1) on a grid that float holds exactly.
  float Uniform() { return static_cast<float>(static_cast<std::int64_t>(Next() >> 40) - (1 << 23)) / (1 << 23); }

 private:
  std::uint64_t state_;
};

std::uint64_t NameSeed(std::uint64_t seed, std::string_view name) {  // FNV-1a: a tensor depends on no other
  std::uint64_t hash = 0xcbf29ce484222325ull ^ seed;
  for (const char c : name) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3ull;
  return hash;
}

std::uint16_t HalfBits(float value) {  // normal range only, rounded towards zero
  std::uint32_t bits = 0;
  std::memcpy(&bits, &value, sizeof bits);
  const std::uint32_t sign = (bits >> 16) & 0x8000u;
  const std::int32_t exponent = static_cast<std::int32_t>((bits >> 23) & 0xffu) - 127 + 15;
  if (exponent <= 0) return static_cast<std::uint16_t>(sign);
  return static_cast<std::uint16_t>(sign | (static_cast<std::uint32_t>(exponent) << 10) | ((bits >> 13) & 0x3ffu));
}

std::string RandomBytes(std::size_t count, Random& random) {
  std::string out(count, '\0');
  for (char& c : out) c = static_cast<char>(random.Next() >> 56);
  return out;
}

// One block of random quants whose dequantised values lie roughly uniform over (-spread, spread).
std::string RandomBlock(TensorType type, float spread, Random& random) {
  const auto half = [](float value) { return LittleEndian(HalfBits(value)); };
  switch (type) {
    case TensorType::kQ8_0:
      return half(spread / 128) + RandomBytes(32, random);
    case TensorType::kQ4_0:
      return half(spread / 8) + RandomBytes(16, random);
    case TensorType::kQ4_1:
      return half(spread / 8) + half(-spread) + RandomBytes(16, random);
    case TensorType::kQ4_K: {
      // x = d * scale * q - dmin * min, six-bit scale and min, q 0..15. The packed bytes below make every scale and
      // min of the block 32 or 33, so with dmin = 7.5 d the values centre on zero.
      const float d = spread / (32.0f * 7.5f);
      std::string scales;
      for (int i = 0; i < 8; ++i)
        scales += static_cast<char>(0xa0 | (random.Next() & 1));  // low six: 32/33; top two: 2
      for (int i = 0; i < 4; ++i) scales += static_cast<char>((random.Next() & 1) | ((random.Next() & 1) << 4));
      return half(d) + half(d * 7.5f) + scales + RandomBytes(128, random);
    }
    case TensorType::kQ6_K: {
      std::string block = RandomBytes(128 + 64, random);                                                   // ql, qh
      for (int i = 0; i < 16; ++i) block += static_cast<char>(16 + static_cast<int>(random.Next() & 15));  // scales
      return block + half(spread / (32.0f * 24.0f));
    }
    default:
      std::fputs("tiny_gguf: no random block for this tensor type\n", stderr);
      std::abort();
  }
}

std::string RandomTensor(TensorType type, std::uint64_t elements, std::uint64_t row, float spread, Random& random) {
  const kernels::TensorTypeInfo& info = kernels::InfoOf(type);
  if (row % info.block_elements != 0) {
    std::fputs(fmt::format("tiny_gguf: rows of {} are not whole {} blocks\n", row, info.name).c_str(), stderr);
    std::abort();
  }
  std::string out;
  for (std::uint64_t done = 0; done < elements; done += info.block_elements) {
    if (info.block_elements > 1) {
      out += RandomBlock(type, spread, random);
      continue;
    }
    const float value = random.Uniform() * spread;
    std::uint32_t bits = 0;
    std::memcpy(&bits, &value, sizeof bits);
    if (type == TensorType::kF32) out += LittleEndian(value);
    if (type == TensorType::kF16) out += LittleEndian(HalfBits(value));
    if (type == TensorType::kBF16) out += LittleEndian(static_cast<std::uint16_t>(bits >> 16));
  }
  return out;
}

class ModelWriter {
 public:
  ModelWriter(const TinyGgufOptions& options, GgufWriter& writer) : options_(options), writer_(writer) {}

  void AddMatrix(const std::string& name, std::uint64_t columns, std::uint64_t rows, float spread) {
    Random random(NameSeed(options_.seed, name));
    Add(name, {columns, rows}, options_.matrix_type,
        RandomTensor(options_.matrix_type, columns * rows, columns, spread, random));
  }
  void AddNorm(const std::string& name, std::uint64_t size) {
    Random random(NameSeed(options_.seed, name));
    std::string data;
    for (std::uint64_t i = 0; i < size; ++i) data += LittleEndian(1.0f + 0.25f * random.Uniform());
    Add(name, {size}, TensorType::kF32, std::move(data));
  }

 private:
  void Add(const std::string& name, const std::vector<std::uint64_t>& dims, TensorType type, std::string data) {
    if (name == options_.altered_tensor) {
      // In the middle; of a float, a high mantissa bit, so that results visibly change.
      const std::size_t at = data.size() / 2 + (type == TensorType::kF32 ? 2 : 0);
      data[at] = static_cast<char>(data[at] ^ 0x10);
    }
    writer_.AddTensor(name, dims, static_cast<std::uint32_t>(type), std::move(data));
  }
  const TinyGgufOptions& options_;
  GgufWriter& writer_;
};

}  // namespace

GgufWriter TinyGgufMetadata(const TinyGgufOptions& options) {
  GgufWriter writer(options.version, options.alignment);
  const std::string& arch = options.architecture;
  const Vocabulary vocabulary = MakeVocabulary(options);
  writer.AddString("general.architecture", arch);
  writer.AddString("general.name", "tiny");
  writer.AddU32(arch + ".block_count", options.layers);
  writer.AddU32(arch + ".context_length", options.context);
  writer.AddU32(arch + ".embedding_length", options.heads * options.head_dim);
  writer.AddU32(arch + ".feed_forward_length", options.ffn);
  writer.AddU32(arch + ".attention.head_count", options.heads);
  writer.AddU32(arch + ".attention.head_count_kv", options.kv_heads);
  writer.AddF32(arch + ".attention.layer_norm_rms_epsilon", 1e-5f);
  writer.AddF32(arch + ".rope.freq_base", options.rope_base);
  writer.AddU32(arch + ".rope.dimension_count", options.head_dim);
  writer.AddU32(arch + ".vocab_size", static_cast<std::uint32_t>(vocabulary.tokens.size()));
  writer.AddString("tokenizer.ggml.model", options.tokenizer_model);
  writer.AddString("tokenizer.ggml.pre", options.pre);
  writer.AddStrings("tokenizer.ggml.tokens", vocabulary.tokens);
  writer.AddI32s("tokenizer.ggml.token_type", vocabulary.types);
  writer.AddStrings("tokenizer.ggml.merges", vocabulary.merges);
  writer.AddU32("tokenizer.ggml.bos_token_id", kTinyImStart);
  writer.AddU32("tokenizer.ggml.eos_token_id", kTinyImEnd);
  writer.AddBool("tokenizer.ggml.add_bos_token", options.add_bos);
  if (options.chat_template.empty()) {
    writer.AddString("tokenizer.chat_template",
                     fmt::format("{}{}{}", kChatTemplateHead, kTinyDefaultSystem, kChatTemplateTail));
  } else if (options.chat_template != "none") {
    writer.AddString("tokenizer.chat_template", options.chat_template);
  }
  return writer;
}

std::string TinyGgufBytes(const TinyGgufOptions& options) {
  GgufWriter writer = TinyGgufMetadata(options);
  const std::uint64_t hidden = std::uint64_t{options.heads} * options.head_dim;
  const std::uint64_t kv = std::uint64_t{options.kv_heads} * options.head_dim;
  const std::uint64_t vocab = MakeVocabulary(options).tokens.size();
  // Uniform over (-spread, spread) has variance spread²/3: outputs of each matrix keep the variance of its inputs.
  const float in = std::sqrt(3.0f / static_cast<float>(hidden));
  const float ffn_in = std::sqrt(3.0f / static_cast<float>(options.ffn));
  ModelWriter model(options, writer);
  model.AddMatrix("token_embd.weight", hidden, vocab, 1.0f);
  for (std::uint32_t layer = 0; layer < options.layers; ++layer) {
    const std::string block = fmt::format("blk.{}.", layer);
    model.AddNorm(block + "attn_norm.weight", hidden);
    model.AddMatrix(block + "attn_q.weight", hidden, hidden, 2 * in);  // doubled: attention that prefers some tokens
    model.AddMatrix(block + "attn_k.weight", hidden, kv, 2 * in);
    model.AddMatrix(block + "attn_v.weight", hidden, kv, in);
    model.AddMatrix(block + "attn_output.weight", hidden, hidden, in);
    model.AddNorm(block + "ffn_norm.weight", hidden);
    model.AddMatrix(block + "ffn_gate.weight", hidden, options.ffn, in);
    model.AddMatrix(block + "ffn_up.weight", hidden, options.ffn, in);
    model.AddMatrix(block + "ffn_down.weight", options.ffn, hidden, ffn_in);
  }
  model.AddNorm("output_norm.weight", hidden);
  if (!options.tied_embeddings) model.AddMatrix("output.weight", hidden, vocab, in);
  return writer.Build();
}

absl::Status WriteTinyGguf(const std::string& path, const TinyGgufOptions& options) {
  return WriteWholeFile(path, TinyGgufBytes(options));
}

}  // namespace kvist::engine
