// The 256 entries behind opcode_info(). Included by wire/opcode.hpp only, which documents it.
#pragma once

#include "wire/opcode.hpp"

namespace feroce::wire {

namespace table {

constexpr std::uint16_t operator|(Header a, Header b) {
    return static_cast<std::uint16_t>(static_cast<unsigned>(a) | static_cast<unsigned>(b));
}
constexpr std::uint16_t operator|(std::uint16_t a, Header b) {
    return static_cast<std::uint16_t>(a | static_cast<unsigned>(b));
}
constexpr std::uint16_t just(Header h) {
    return static_cast<std::uint16_t>(h);
}

struct Row {
    Opcode opcode;
    Verb verb;
    Position position;
    std::uint16_t headers;
    const char* names[3];  // As RC, UC, XRC; nullptr where the service does not have it.
};

using enum Position;

// What RC, UC and XRC share. READ response MIDDLE alone among the answers has no AETH.
inline constexpr std::array kConnectedRows{
    Row{Opcode::RcSendFirst,
        Verb::Send,
        First,
        0,
        {"RC_SEND_FIRST", "UC_SEND_FIRST", "XRC_SEND_FIRST"}},
    Row{Opcode::RcSendMiddle,
        Verb::Send,
        Middle,
        0,
        {"RC_SEND_MIDDLE", "UC_SEND_MIDDLE", "XRC_SEND_MIDDLE"}},
    Row{Opcode::RcSendLast, Verb::Send, Last, 0, {"RC_SEND_LAST", "UC_SEND_LAST", "XRC_SEND_LAST"}},
    Row{Opcode::RcSendLastImmediate,
        Verb::Send,
        Last,
        just(Header::Immediate),
        {"RC_SEND_LAST_IMM", "UC_SEND_LAST_IMM", "XRC_SEND_LAST_IMM"}},
    Row{Opcode::RcSendOnly, Verb::Send, Only, 0, {"RC_SEND_ONLY", "UC_SEND_ONLY", "XRC_SEND_ONLY"}},
    Row{Opcode::RcSendOnlyImmediate,
        Verb::Send,
        Only,
        just(Header::Immediate),
        {"RC_SEND_ONLY_IMM", "UC_SEND_ONLY_IMM", "XRC_SEND_ONLY_IMM"}},
    Row{Opcode::RcWriteFirst,
        Verb::Write,
        First,
        just(Header::Reth),
        {"RC_WRITE_FIRST", "UC_WRITE_FIRST", "XRC_WRITE_FIRST"}},
    Row{Opcode::RcWriteMiddle,
        Verb::Write,
        Middle,
        0,
        {"RC_WRITE_MIDDLE", "UC_WRITE_MIDDLE", "XRC_WRITE_MIDDLE"}},
    Row{Opcode::RcWriteLast,
        Verb::Write,
        Last,
        0,
        {"RC_WRITE_LAST", "UC_WRITE_LAST", "XRC_WRITE_LAST"}},
    Row{Opcode::RcWriteLastImmediate,
        Verb::Write,
        Last,
        just(Header::Immediate),
        {"RC_WRITE_LAST_IMM", "UC_WRITE_LAST_IMM", "XRC_WRITE_LAST_IMM"}},
    Row{Opcode::RcWriteOnly,
        Verb::Write,
        Only,
        just(Header::Reth),
        {"RC_WRITE_ONLY", "UC_WRITE_ONLY", "XRC_WRITE_ONLY"}},
    Row{Opcode::RcWriteOnlyImmediate,
        Verb::Write,
        Only,
        Header::Reth | Header::Immediate,
        {"RC_WRITE_ONLY_IMM", "UC_WRITE_ONLY_IMM", "XRC_WRITE_ONLY_IMM"}},
    Row{Opcode::RcReadRequest,
        Verb::ReadRequest,
        Only,
        just(Header::Reth),
        {"RC_READ_REQUEST", nullptr, "XRC_READ_REQUEST"}},
    Row{Opcode::RcReadResponseFirst,
        Verb::ReadResponse,
        First,
        just(Header::Aeth),
        {"RC_READ_RESP_FIRST", nullptr, "XRC_READ_RESP_FIRST"}},
    Row{Opcode::RcReadResponseMiddle,
        Verb::ReadResponse,
        Middle,
        0,
        {"RC_READ_RESP_MIDDLE", nullptr, "XRC_READ_RESP_MIDDLE"}},
    Row{Opcode::RcReadResponseLast,
        Verb::ReadResponse,
        Last,
        just(Header::Aeth),
        {"RC_READ_RESP_LAST", nullptr, "XRC_READ_RESP_LAST"}},
    Row{Opcode::RcReadResponseOnly,
        Verb::ReadResponse,
        Only,
        just(Header::Aeth),
        {"RC_READ_RESP_ONLY", nullptr, "XRC_READ_RESP_ONLY"}},
    Row{Opcode::RcAck, Verb::Ack, Only, just(Header::Aeth), {"RC_ACK", nullptr, "XRC_ACK"}},
    Row{Opcode::RcAtomicAck,
        Verb::AtomicAck,
        Only,
        Header::Aeth | Header::AtomicAckEth,
        {"RC_ATOMIC_ACK", nullptr, "XRC_ATOMIC_ACK"}},
    Row{Opcode::RcCompareSwap,
        Verb::CompareSwap,
        Only,
        just(Header::AtomicEth),
        {"RC_CMP_SWAP", nullptr, "XRC_CMP_SWAP"}},
    Row{Opcode::RcFetchAdd,
        Verb::FetchAdd,
        Only,
        just(Header::AtomicEth),
        {"RC_FETCH_ADD", nullptr, "XRC_FETCH_ADD"}},
    Row{Opcode::RcSendLastInvalidate,
        Verb::Send,
        Last,
        just(Header::Ieth),
        {"RC_SEND_LAST_INV", nullptr, "XRC_SEND_LAST_INV"}},
    Row{Opcode::RcSendOnlyInvalidate,
        Verb::Send,
        Only,
        just(Header::Ieth),
        {"RC_SEND_ONLY_INV", nullptr, "XRC_SEND_ONLY_INV"}},
    Row{Opcode::RcFlush,
        Verb::Flush,
        Only,
        Header::Feth | Header::Reth,
        {"RC_FLUSH", nullptr, nullptr}},
    Row{Opcode::RcAtomicWrite,
        Verb::AtomicWrite,
        Only,
        just(Header::Reth),
        {"RC_ATOMIC_WRITE", nullptr, nullptr}},
};

constexpr OpcodeInfo make(Service service, Verb verb, Position position, std::uint16_t headers,
                          const char* name) {
    OpcodeInfo info{.known = true,
                    .service = service,
                    .verb = verb,
                    .position = position,
                    .headers = headers,
                    .name = name};
    for (std::size_t i = 0; i < kHeaderKinds; ++i) {
        info.offsets[i] = info.extension_size;
        if ((headers >> i & 1) != 0)
            info.extension_size = static_cast<std::uint8_t>(info.extension_size + kHeaderSizes[i]);
    }
    return info;
}

// An XRC answer goes to an ordinary initiator, so only requests name a shared receive queue.
constexpr std::uint16_t headers_under(Service service, const Row& row) {
    const bool asks = service == Service::Xrc && !is_answer(row.verb);
    return asks ? row.headers | Header::Xrceth : row.headers;
}

constexpr std::array<OpcodeInfo, 256> build() {
    std::array<OpcodeInfo, 256> all{};
    constexpr std::array kServices{Service::Rc, Service::Uc, Service::Xrc};
    for (std::size_t s = 0; s < kServices.size(); ++s) {
        for (const Row& row : kConnectedRows) {
            if (row.names[s] == nullptr) continue;
            all[static_cast<std::size_t>(opcode_of(kServices[s], row.opcode))] =
                make(kServices[s], row.verb, row.position, headers_under(kServices[s], row),
                     row.names[s]);
        }
    }
    const auto set = [&all](Opcode opcode, const OpcodeInfo& info) {
        all[static_cast<std::size_t>(opcode)] = info;
    };
    set(Opcode::UdSendOnly,
        make(Service::Ud, Verb::Send, Only, just(Header::Deth), "UD_SEND_ONLY"));
    set(Opcode::UdSendOnlyImmediate,
        make(Service::Ud, Verb::Send, Only, Header::Deth | Header::Immediate, "UD_SEND_ONLY_IMM"));
    set(Opcode::Cnp, make(Service::Cnp, Verb::Cnp, Only, 0, "CNP"));
    return all;
}

inline constexpr std::array<OpcodeInfo, 256> kOpcodes = build();

}  // namespace table

constexpr const OpcodeInfo& opcode_info(Opcode opcode) {
    return table::kOpcodes[static_cast<std::size_t>(opcode)];
}

}  // namespace feroce::wire
