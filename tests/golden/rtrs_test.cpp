// The Linux kernel's RTRS and RNBD in the golden captures: every message of a session's and of a
// disk's life is parsed by rtrs/ and block/, found sound, and rebuilt byte for byte.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <set>
#include <vector>

#include "block/messages.hpp"
#include "rtrs/handshake.hpp"
#include "rtrs/immediate.hpp"
#include "rtrs/request_header.hpp"
#include "wire/cma.hpp"
#include "wire/packet.hpp"
#include "wire/pcapng.hpp"

namespace feroce {
namespace {

using namespace feroce::wire;
using Bytes = std::vector<std::byte>;

constexpr rtrs::Geometry kGeometry{512, 126976, 4096};

Bytes copy(ByteView from) {
    return {from.begin(), from.end()};
}

template <class Message>
Bytes rebuilt(const Message& message) {
    Bytes out(Message::kSize);
    message.emit(std::span<std::byte, Message::kSize>(out));
    return out;
}

// Follows the packets of one capture and checks each RTRS message when its last packet has come.
class Follower {
public:
    std::map<std::string, int> counts;

    void packet(const RoceDatagram& datagram, const Packet& packet) {
        if (packet.bth.destination == kGeneralServicesQpn) return mad(packet.payload);
        // A direction of a connection: queue pair numbers repeat on the two hosts.
        Message& message = open_[{copy(std::as_bytes(std::span(datagram.address.source.raw))),
                                  packet.bth.destination.raw}];
        const auto opcode = packet.bth.opcode;
        if (packet.info->has(Header::Reth)) message = {packet.reth().address, {}};
        if (opcode == Opcode::RcSendFirst || opcode == Opcode::RcSendOnly ||
            opcode == Opcode::RcSendOnlyImmediate)
            message = {};
        message.data.insert(message.data.end(), packet.payload.begin(), packet.payload.end());
        if (opcode == Opcode::RcSendOnly || opcode == Opcode::RcSendLast) return plain(message);
        if (packet.info->has(Header::Immediate)) return immediate(packet.immediate(), message);
        if (opcode == Opcode::RcWriteOnly || opcode == Opcode::RcWriteLast) return pushed(message);
        if (opcode == Opcode::RcSendOnlyInvalidate) {
            EXPECT_EQ(keys_.count(packet.invalidate().raw), 1u);
            ++counts["invalidate"];
        }
    }

private:
    struct Message {
        std::uint64_t address = 0;
        Bytes data;
    };

    void mad(ByteView payload) {
        const auto found = parse_cm_mad(payload);
        ASSERT_TRUE(found);
        const CmView view = payload.last<kCmMessageSize>();
        if (found->attribute == CmAttribute::Req) {
            const CmReq request = CmReq::parse(view);
            const ByteView data = ByteView(request.private_data).subspan(CmaHeader::kSize);
            const auto parsed = rtrs::ConnectRequest::parse(data);
            ASSERT_TRUE(parsed);
            EXPECT_EQ(rebuilt(*parsed), copy(data));
            EXPECT_EQ(parsed->connection_count, 3);
            EXPECT_EQ(parsed->extension, 0);
            ++counts["connect request"];
        } else if (found->attribute == CmAttribute::Rep) {
            const CmRep reply = CmRep::parse(view);
            const ByteView data = ByteView(reply.private_data);
            const auto parsed = rtrs::ConnectResponse::parse(data);
            ASSERT_TRUE(parsed);
            EXPECT_EQ(rebuilt(*parsed), copy(data.first(rtrs::ConnectResponse::kSize)));
            EXPECT_EQ(parsed->geometry, kGeometry);
            EXPECT_TRUE(parsed->new_keys);
            ++counts["connect response"];
        }
    }

    void plain(const Message& message) {
        const auto type = rtrs::message_type(message.data);
        ASSERT_TRUE(type);
        if (*type == rtrs::MessageType::InfoRequest) {
            const auto parsed = rtrs::InfoRequest::parse(message.data);
            ASSERT_TRUE(parsed);
            EXPECT_EQ(rebuilt(*parsed), message.data);
            ++counts["info request"];
            return;
        }
        const auto parsed = rtrs::InfoResponse::parse(message.data);
        ASSERT_TRUE(parsed);
        Bytes again(parsed->size());
        parsed->emit(again);
        EXPECT_EQ(again, message.data);
        const auto chunks = parsed->chunks(kGeometry);
        ASSERT_TRUE(chunks);
        EXPECT_EQ(chunks->size(), 512u);
        ++counts["info response"];
    }

    void immediate(std::uint32_t raw, const Message& message) {
        const auto parsed = rtrs::Immediate::parse(raw);
        ASSERT_TRUE(parsed);
        EXPECT_EQ(parsed->raw(), raw);
        if (*parsed == rtrs::kHeartbeat || *parsed == rtrs::kHeartbeatAck) {
            EXPECT_TRUE(message.data.empty());
            ++counts[*parsed == rtrs::kHeartbeat ? "heartbeat" : "heartbeat ack"];
        } else if (parsed->type == rtrs::ImmediateType::Request) {
            request(*parsed, message);
        } else {
            response(*parsed, message);
        }
    }

    void request(const rtrs::Immediate& immediate, const Message& message) {
        const auto place = rtrs::RequestPlace::parse(kGeometry, immediate.payload);
        ASSERT_TRUE(place);
        EXPECT_EQ(place->immediate(kGeometry), immediate);
        // The kernel's chunks are aligned to their size.
        const std::uint64_t start = message.address % kGeometry.chunk_size();
        ASSERT_LE(start, place->header_offset);
        const ByteView at = ByteView(message.data).subspan(place->header_offset - start);
        const auto header = rtrs::RequestHeader::parse(at, place->header_offset, false);
        ASSERT_TRUE(header) << header.error().why;
        Bytes again(header->size());
        header->emit(again);
        EXPECT_EQ(again, copy(at));
        for (std::size_t i = 0; i < header->segment_count; ++i)
            keys_.insert(header->segments[i].key);
        ++counts[header->direction == rtrs::Direction::Read ? "read" : "write"];
        const std::size_t message_at = place->header_offset - start - header->message_size;
        const auto type =
            user_message(*header, ByteView(message.data).subspan(message_at, header->message_size));
        if (header->segment_count > 0) asked_[header->segments[0].address] = type;
    }

    block::MessageType user_message(const rtrs::RequestHeader& header, ByteView bytes) {
        const auto type = block::message_type(bytes).value();
        switch (type) {
            case block::MessageType::SessionInfo:
                check_session_info(bytes, type);
                break;
            case block::MessageType::Open: {
                const auto parsed = block::OpenRequest::parse(bytes);
                EXPECT_TRUE(parsed);
                EXPECT_EQ(rebuilt(*parsed), copy(bytes));
                EXPECT_EQ(parsed->access, block::AccessMode::ReadWrite);
                ++counts["rnbd open"];
                break;
            }
            case block::MessageType::Io:
                check_io(header, bytes);
                break;
            case block::MessageType::Close: {
                const auto parsed = block::CloseRequest::parse(bytes);
                EXPECT_TRUE(parsed);
                EXPECT_EQ(rebuilt(*parsed), copy(bytes));
                ++counts["rnbd close"];
                break;
            }
            default:
                ADD_FAILURE() << "a client sent a message of type " << static_cast<int>(type);
        }
        return type;
    }

    void check_session_info(ByteView bytes, block::MessageType type) {
        const auto parsed = block::SessionInfo::parse(bytes, type);
        ASSERT_TRUE(parsed);
        Bytes again(block::SessionInfo::kSize);
        parsed->emit(std::span<std::byte, block::SessionInfo::kSize>(again), type);
        EXPECT_EQ(again, copy(bytes));
        EXPECT_EQ(parsed->version, 2);
        ++counts[type == block::MessageType::SessionInfo ? "rnbd hello" : "rnbd hello response"];
    }

    void check_io(const rtrs::RequestHeader& header, ByteView bytes) {
        const auto parsed = block::IoRequest::parse(bytes);
        ASSERT_TRUE(parsed);
        // Behind the priority stands what lay on the kernel's stack.
        const std::size_t used = block::IoRequest::kUsedSize;
        EXPECT_EQ(copy(ByteView(rebuilt(*parsed)).first(used)), copy(bytes.first(used)));
        const bool reads = header.direction == rtrs::Direction::Read;
        if (parsed->kind == block::IoKind::Read) {
            EXPECT_EQ(header.segments[0].length, parsed->size);
        }
        EXPECT_EQ(reads,
                  parsed->kind == block::IoKind::Read || parsed->kind == block::IoKind::Flush);
        ++counts["rnbd io"];
    }

    // Data of a read, by the message that asked for it.
    void pushed(const Message& message) {
        const auto asked = asked_.find(message.address);
        ASSERT_NE(asked, asked_.end());
        if (asked->second == block::MessageType::SessionInfo)
            check_session_info(message.data, block::MessageType::SessionInfoResponse);
        if (asked->second != block::MessageType::Open) return;
        const auto parsed = block::OpenResponse::parse(message.data);
        ASSERT_TRUE(parsed) << parsed.error().why;
        EXPECT_EQ(rebuilt(*parsed), message.data);
        ++counts["rnbd open response"];
    }

    void response(const rtrs::Immediate& immediate, const Message& message) {
        const auto parsed = rtrs::Response::parse(kGeometry, immediate);
        ASSERT_TRUE(parsed);
        EXPECT_EQ(parsed->immediate(), immediate);
        const auto key = rtrs::KeyResponse::parse(message.data);
        ASSERT_TRUE(key);
        EXPECT_EQ(key->chunk, parsed->chunk);
        EXPECT_EQ(rebuilt(*key), message.data);
        ++counts[parsed->invalidated ? "response after invalidate" : "response"];
    }

    std::map<std::pair<Bytes, std::uint32_t>, Message> open_;
    std::set<std::uint32_t> keys_;                       // That reads lent to the server.
    std::map<std::uint64_t, block::MessageType> asked_;  // By the address for the answer.
};

TEST(GoldenRtrs, EveryMessageIsRebuiltByteForByte) {
    std::map<std::string, int> counts;
    for (const auto& entry : std::filesystem::directory_iterator(FEROCE_GOLDEN_DATA)) {
        const std::string name = entry.path().filename();
        if (name.rfind("rtrs-", 0) != 0 && name.rfind("rnbd-", 0) != 0) continue;
        SCOPED_TRACE(name);
        std::ifstream in(entry.path(), std::ios::binary);
        const std::string text((std::istreambuf_iterator<char>(in)), {});
        PcapngReader reader(std::as_bytes(std::span(text)));
        Follower follower;
        while (const auto frame = reader.next()) {
            const auto datagram = find_datagram(*frame);
            Packet packet;
            ASSERT_TRUE(datagram);
            ASSERT_EQ(parse_packet(datagram->udp_payload, packet), ParseError::None);
            follower.packet(*datagram, packet);
        }
        for (const auto& [kind, count] : follower.counts) counts[kind] += count;
    }
    const std::map<std::string, int> expected{{"connect request", 6},
                                              {"connect response", 6},
                                              {"info request", 2},
                                              {"info response", 2},
                                              {"heartbeat", 6},
                                              {"heartbeat ack", 6},
                                              {"read", 8},
                                              {"write", 5},
                                              {"response", 5},
                                              {"invalidate", 8},
                                              {"response after invalidate", 8},
                                              {"rnbd hello", 2},
                                              {"rnbd hello response", 2},
                                              {"rnbd open", 2},
                                              {"rnbd open response", 2},
                                              {"rnbd io", 7},
                                              {"rnbd close", 2}};
    EXPECT_EQ(counts, expected);
}

}  // namespace
}  // namespace feroce
