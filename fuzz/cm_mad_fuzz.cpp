// The parsers of connection manager messages on any bytes. A message of any attribute is read as
// every kind, since what parses must also rebuild to an equal value; the CMA header in front of the
// private data of a REQ is read as well. The corpus begins with one message of each kind as the
// Linux kernel sent it.
#include "base/assert.hpp"
#include "wire/cm_path_messages.hpp"
#include "wire/cma.hpp"

namespace {

using namespace feroce;

template <class Message>
void check_message(wire::CmView view) {
    const Message message = Message::parse(view);
    std::array<std::byte, wire::kCmMessageSize> bytes;
    message.emit(bytes);
    ASSERT(Message::parse(bytes) == message);
}

void check_header(ByteView bytes) {
    if (bytes.size() < wire::CmaHeader::kSize) return;
    const auto header = wire::CmaHeader::parse(bytes.first<wire::CmaHeader::kSize>());
    std::array<std::byte, wire::CmaHeader::kSize> rebuilt;
    header.emit(rebuilt);
    ASSERT(std::equal(rebuilt.begin(), rebuilt.end(), bytes.begin()));
}

void check_mad(ByteView bytes) {
    const auto mad = wire::parse_cm_mad(bytes);
    if (!mad) return;
    check_message<wire::CmReq>(mad->message);
    check_message<wire::CmMra>(mad->message);
    check_message<wire::CmRej>(mad->message);
    check_message<wire::CmRep>(mad->message);
    check_message<wire::CmRtu>(mad->message);
    check_message<wire::CmDreq>(mad->message);
    check_message<wire::CmDrep>(mad->message);
    check_message<wire::CmAlive>(mad->message);
    check_message<wire::CmLap>(mad->message);
    check_message<wire::CmApr>(mad->message);
    check_message<wire::CmSidrReq>(mad->message);
    check_message<wire::CmSidrRep>(mad->message);
    check_header(wire::CmReq::parse(mad->message).private_data);
    (void)wire::port_space_of(wire::CmReq::parse(mad->message).service_id);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    check_mad(std::as_bytes(std::span(data, size)));
    check_header(std::as_bytes(std::span(data, size)));
    return 0;
}
