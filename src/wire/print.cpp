// Text for people: names are IBTA's, keys and addresses in hex, counts in decimal.
#include "wire/print.hpp"

#include <cstdio>

namespace feroce::wire {

namespace {

template <class... Values>
void append(std::string& line, const char* format, Values... values) {
    char text[96];
    std::snprintf(text, sizeof text, format, values...);
    line += text;
}

const char* name_of(NakCode code) {
    switch (code) {
        case NakCode::SequenceError:
            return "NAK sequence error";
        case NakCode::InvalidRequest:
            return "NAK invalid request";
        case NakCode::RemoteAccess:
            return "NAK remote access error";
        case NakCode::RemoteOperational:
            return "NAK remote operational error";
        case NakCode::InvalidRdRequest:
            return "NAK invalid RD request";
    }
    return "NAK of unknown code";
}

unsigned long long wide(std::uint64_t v) {
    return v;
}

void append_flags(std::string& line, const Bth& bth) {
    if (bth.solicited) line += " solicited";
    if (bth.ack_request) line += " ack-request";
    if (bth.migrated) line += " migrated";
    if (bth.fecn) line += " fecn";
    if (bth.becn) line += " becn";
    if (bth.pkey != kDefaultPkey) append(line, " pkey 0x%04x", unsigned{bth.pkey.raw});
}

void append_request(std::string& line, const Packet& p) {
    if (p.info->has(Header::Xrceth)) append(line, " srq 0x%06x", p.xrceth().srq.raw);
    if (p.info->has(Header::Deth))
        append(line, " from qpn 0x%06x qkey 0x%08x", p.deth().source.raw, p.deth().qkey.raw);
    if (p.info->has(Header::Feth))
        append(line, " placement %u selectivity %u", unsigned{p.feth().placement},
               unsigned{p.feth().selectivity});
    if (p.info->has(Header::Reth))
        append(line, " va 0x%llx rkey 0x%08x length %u", wide(p.reth().address), p.reth().rkey.raw,
               p.reth().length);
    if (!p.info->has(Header::AtomicEth)) return;
    const AtomicEth atomic = p.atomic_eth();
    append(line, " va 0x%llx rkey 0x%08x", wide(atomic.address), atomic.rkey.raw);
    if (p.info->verb == Verb::FetchAdd)
        append(line, " add 0x%llx", wide(atomic.swap_or_add));
    else
        append(line, " compare 0x%llx swap 0x%llx", wide(atomic.compare), wide(atomic.swap_or_add));
}

void append_answer(std::string& line, const Packet& p) {
    if (!p.info->has(Header::Aeth)) return;
    line += ' ' + to_string(p.aeth().syndrome);
    append(line, " msn %u", p.aeth().msn);
    if (p.info->has(Header::AtomicAckEth))
        append(line, " original 0x%llx", wide(p.atomic_ack().original));
}

}  // namespace

std::string to_string(Syndrome syndrome) {
    std::string text;
    switch (syndrome.kind()) {
        case Syndrome::Kind::Ack:
            text = "ACK";
            if (syndrome.value() != kNoCredits)
                append(text, " credits %u", unsigned{syndrome.value()});
            break;
        case Syndrome::Kind::Rnr:
            append(text, "RNR NAK, wait %.2f ms", rnr_timer_us(syndrome.value()) / 1000.0);
            break;
        case Syndrome::Kind::Nak:
            text = name_of(syndrome.nak_code());
            break;
        case Syndrome::Kind::Reserved:
            append(text, "reserved syndrome 0x%02x", unsigned{syndrome.raw});
            break;
    }
    return text;
}

std::string describe(const Packet& packet) {
    std::string line = packet.info->name;
    append(line, " qpn 0x%06x psn %u", packet.bth.destination.raw, packet.bth.psn.raw());
    append_flags(line, packet.bth);
    append_request(line, packet);
    append_answer(line, packet);
    if (packet.info->has(Header::Immediate)) append(line, " immediate 0x%08x", packet.immediate());
    if (packet.info->has(Header::Ieth)) append(line, " invalidate 0x%08x", packet.invalidate().raw);
    if (packet.info->may_carry_payload()) append(line, " payload %zu", packet.payload.size());
    return line;
}

}  // namespace feroce::wire
