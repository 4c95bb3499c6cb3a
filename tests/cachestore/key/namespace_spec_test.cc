#include "cachestore/key/namespace_spec.h"

#include <functional>
#include <set>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace kvist {
namespace {

using testing::HasSubstr;

NamespaceSpec Valid() {
  NamespaceSpec spec;
  spec.model = "m";
  spec.layout = "l";
  spec.positional = "p";
  spec.adapter = "a";
  spec.media = std::string("\0\xff", 2);
  spec.tenant = "t";
  spec.salt = "s";
  spec.layers = 3;
  spec.layer_bytes = 1000;
  return spec;
}

TEST(NamespaceSpec, ComesBackFromItsCanonicalBytes) {
  for (const NamespaceSpec& spec : {Valid(), NamespaceSpec()}) {
    const auto back = NamespaceSpec::FromCanonical(spec.Canonical());
    ASSERT_TRUE(back.ok()) << back.status();
    EXPECT_EQ(*back, spec);
  }
}

TEST(NamespaceSpec, NoTwoSpecsEncodeAlike) {
  const std::vector<std::string NamespaceSpec::*> fields = {
      &NamespaceSpec::model, &NamespaceSpec::layout, &NamespaceSpec::positional, &NamespaceSpec::adapter,
      &NamespaceSpec::media, &NamespaceSpec::tenant, &NamespaceSpec::salt};
  std::set<std::string> encodings;
  std::size_t specs = 0;
  // The same characters, distributed differently over the fields.
  for (const auto first : fields) {
    for (const auto second : fields) {
      NamespaceSpec spec;
      spec.*first += "ab";
      spec.*second += "c";
      encodings.insert(spec.Canonical());
      ++specs;
    }
  }
  EXPECT_EQ(encodings.size(), specs);
}

TEST(NamespaceSpec, RefusesWhatIsNotACanonicalEncoding) {
  const std::string bytes = Valid().Canonical();
  for (std::size_t length = 0; length < bytes.size(); ++length) {
    EXPECT_TRUE(absl::IsDataLoss(NamespaceSpec::FromCanonical(bytes.substr(0, length)).status())) << length;
  }
  EXPECT_TRUE(absl::IsDataLoss(NamespaceSpec::FromCanonical(bytes + "x").status()));
  std::string huge = bytes;
  huge.replace(18, 8, std::string(8, '\xff'));  // the first length
  EXPECT_TRUE(absl::IsDataLoss(NamespaceSpec::FromCanonical(huge).status()));
}

TEST(NamespaceSpec, ErrorsNameTheFieldAndItsBounds) {
  EXPECT_TRUE(Valid().Validate().ok());
  struct Case {
    std::function<void(NamespaceSpec&)> change;
    const char* field;
  };
  const std::vector<Case> cases = {
      {[](NamespaceSpec& spec) { spec.block_tokens = 0; }, "block_tokens"},
      {[](NamespaceSpec& spec) { spec.block_tokens = 8; }, "block_tokens"},
      {[](NamespaceSpec& spec) { spec.block_tokens = 48; }, "block_tokens"},
      {[](NamespaceSpec& spec) { spec.block_tokens = 1024; }, "block_tokens"},
      {[](NamespaceSpec& spec) { spec.layers = 0; }, "layers"},
      {[](NamespaceSpec& spec) { spec.layers = 4097; }, "layers"},
      {[](NamespaceSpec& spec) { spec.layer_bytes = 0; }, "layer_bytes"},
      {[](NamespaceSpec& spec) { spec.layer_bytes = ~std::uint64_t{0}; }, "layer_bytes"},
      {[](NamespaceSpec& spec) { spec.model.clear(); }, "model"},
      {[](NamespaceSpec& spec) { spec.salt.assign(5000, 's'); }, "salt"},
  };
  for (const Case& c : cases) {
    NamespaceSpec spec = Valid();
    c.change(spec);
    const absl::Status status = spec.Validate();
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << c.field;
    EXPECT_THAT(std::string(status.message()), HasSubstr(std::string("field ") + c.field));
  }
}

}  // namespace
}  // namespace kvist
