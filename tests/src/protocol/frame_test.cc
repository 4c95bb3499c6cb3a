#include "src/protocol/frame.h"

#include "gmock/gmock.h"
#include "src/protocol/kvist.pb.h"

namespace kvist::protocol {
namespace {

std::array<std::byte, kFrameHeaderBytes> Header(std::uint32_t length) {
  return {static_cast<std::byte>(length & 0xff), static_cast<std::byte>((length >> 8) & 0xff),
          static_cast<std::byte>((length >> 16) & 0xff), static_cast<std::byte>(length >> 24)};
}

TEST(Frame, EncodesALittleEndianLengthAndTheMessage) {
  v1::Request request;
  request.set_id(7);
  request.mutable_match()->set_tokens(std::string(300, 'x'));
  const auto frame = EncodeFrame(request);
  ASSERT_TRUE(frame.ok());
  const std::size_t body = frame->size() - kFrameHeaderBytes;
  EXPECT_EQ(static_cast<unsigned char>((*frame)[0]), body & 0xff);
  EXPECT_EQ(static_cast<unsigned char>((*frame)[1]), body >> 8);
  const auto parsed = ParseFrameHeader(Header(static_cast<std::uint32_t>(body)));
  ASSERT_TRUE(parsed.ok());
  EXPECT_EQ(*parsed, body);
  v1::Request again;
  ASSERT_TRUE(again.ParseFromString(frame->substr(kFrameHeaderBytes)));
  EXPECT_EQ(again.id(), 7u);
}

TEST(Frame, RefusesLengthsBeyondTheLimitAndZero) {
  EXPECT_FALSE(ParseFrameHeader(Header(0)).ok());
  EXPECT_TRUE(ParseFrameHeader(Header(kMaxFrameBytes)).ok());
  EXPECT_FALSE(ParseFrameHeader(Header(kMaxFrameBytes + 1)).ok());
  EXPECT_FALSE(ParseFrameHeader(Header(0xffffffff)).ok());
  EXPECT_FALSE(ParseFrameHeader(Header(kMaxHelloBytes + 1), kMaxHelloBytes).ok());
}

TEST(Frame, RefusesToEncodeWhatThePeerWouldRefuse) {
  v1::Request request;
  EXPECT_FALSE(EncodeFrame(request).ok()) << "an empty message has no body";
  request.mutable_match()->set_tokens(std::string(kMaxFrameBytes, 'x'));
  EXPECT_TRUE(absl::IsInvalidArgument(EncodeFrame(request).status()));
}

TEST(Frame, HoldsAPromptOfAMillionTokens) {
  v1::Request request;
  request.set_id(1);
  request.mutable_acquire()->set_tokens(std::string(4'000'000, 'x'));
  EXPECT_TRUE(EncodeFrame(request).ok());
}

TEST(Frame, CarriesEveryStatusCode) {
  for (int code = 0; code <= 16; ++code) {
    const absl::Status status = StatusFromWire(code, "why");
    EXPECT_EQ(status.raw_code(), code);
    EXPECT_TRUE(v1::Code_IsValid(code));
  }
  EXPECT_EQ(StatusFromWire(999, "why").code(), absl::StatusCode::kUnknown);
  EXPECT_EQ(StatusFromWire(-1, "why").code(), absl::StatusCode::kUnknown);
}

}  // namespace
}  // namespace kvist::protocol
