// Every message of a session's set-up from bytes that anyone may have sent: what is taken must come
// out as it went in, and describe only what the session has.
#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/assert.hpp"
#include "rtrs/handshake.hpp"
#include "rtrs/immediate.hpp"
#include "rtrs/request_header.hpp"

namespace {

using namespace feroce;
using namespace feroce::rtrs;

template <class Message>
void round_trip(const Result<Message>& parsed) {
    if (!parsed) return;
    std::array<std::byte, Message::kSize> bytes;
    parsed->emit(bytes);
    const Result<Message> again = Message::parse(bytes);
    ASSERT(again.has_value() && *again == *parsed);
}

void try_info(ByteView data) {
    if (const auto request = InfoRequest::parse(data)) {
        std::array<std::byte, InfoRequest::kSize> bytes;
        request->emit(bytes);
        ASSERT(InfoRequest::parse(bytes).value().name == request->name);
    }
    const auto response = InfoResponse::parse(data);
    if (!response) return;
    const Geometry geometry{4, 4096, 4096};
    if (const auto chunks = response->chunks(geometry)) ASSERT(chunks->size() == 4);
}

void try_header(ByteView data) {
    for (const bool extended : {false, true}) {
        const auto offset = static_cast<std::uint32_t>(data.size() * 7);
        const auto header = RequestHeader::parse(data, offset, extended);
        if (!header) continue;
        std::uint64_t sum = header->message_size;
        for (std::size_t i = 0; i < header->segment_count; ++i) sum += header->segments[i].length;
        ASSERT(sum <= offset);
        std::vector<std::byte> bytes(header->size());
        ASSERT(bytes.size() <= RequestHeader::kMaxSize);
        header->emit(bytes);
        ASSERT(RequestHeader::parse(bytes, offset, extended).value() == *header);
    }
}

void try_immediate(ByteView data) {
    if (data.size() < 4) return;
    const auto immediate = Immediate::parse(load_le32(data.first<4>()));
    if (!immediate) return;
    const Geometry geometry{500, 100'000, 4096};
    if (const auto place = RequestPlace::parse(geometry, immediate->payload))
        ASSERT(place->immediate(geometry).payload == immediate->payload);
    if (const auto response = Response::parse(geometry, *immediate))
        ASSERT(response->immediate() == *immediate && response->chunk < 500);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* bytes, std::size_t size);

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* bytes, std::size_t size) {
    const ByteView data(reinterpret_cast<const std::byte*>(bytes), size);
    round_trip(ConnectRequest::parse(data));
    round_trip(ConnectResponse::parse(data));
    round_trip(KeyResponse::parse(data));
    try_info(data);
    try_header(data);
    try_immediate(data);
    for (const MessageType type : {MessageType::FenceRequest, MessageType::FenceResponse})
        if (const auto fence = Fence::parse(data, type)) {
            std::array<std::byte, Fence::kSize> out;
            fence->emit(out, type);
            ASSERT(Fence::parse(out, type).value() == *fence);
        }
    return 0;
}
