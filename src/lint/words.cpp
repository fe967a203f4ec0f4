#include "lint/words.hpp"

#include <algorithm>
#include <charconv>

namespace feroce::lint {

const char* name(Kind kind) {
    switch (kind) {
        case Kind::BufferChanged:
            return "buffer-changed";
        case Kind::NoReceive:
            return "no-receive";
        case Kind::AccessFlags:
            return "access-flags";
        case Kind::ModifyQp:
            return "modify-qp";
        case Kind::CqTooSmall:
            return "cq-too-small";
        case Kind::Unsignaled:
            return "unsignaled";
        case Kind::Unacknowledged:
            return "unacknowledged";
        case Kind::MissedEvent:
            return "missed-event";
        case Kind::ErrorIgnored:
            return "error-ignored";
        case Kind::RegionInUse:
            return "region-in-use";
        case Kind::BadSge:
            return "bad-sge";
        case Kind::InlineTooLong:
            return "inline-too-long";
        case Kind::Datagram:
            return "datagram";
        case Kind::Disagreement:
            return "disagreement";
        case Kind::ForkedObject:
            return "forked-object";
        case Kind::CardLimit:
            return "card-limit";
        case Kind::ByteOrder:
            return "byte-order";
        case Kind::ReadEarly:
            return "read-early";
        case Kind::ImmediateOrder:
            return "immediate-order";
        case Kind::TwoThreads:
            return "two-threads";
    }
    return "";
}

const char* name(Op op) {
    switch (op) {
        case Op::Send:
            return "SEND";
        case Op::Write:
            return "WRITE";
        case Op::Read:
            return "READ";
        case Op::Atomic:
            return "atomic";
        case Op::Local:
            return "local request";
        case Op::Receive:
            return "receive";
    }
    return "";
}

std::string hex(std::uint64_t number) {
    char digits[16];
    const auto end = std::to_chars(digits, digits + sizeof digits, number, 16).ptr;
    return "0x" + std::string(digits, end);
}

std::string qpn_text(std::uint32_t qpn) {
    const std::string digits = hex(qpn).substr(2);
    return "0x" + std::string(6 - std::min<std::size_t>(6, digits.size()), '0') + digits;
}

std::string describe(const Request& request, std::uint32_t qpn) {
    std::string out = "WR " + std::to_string(request.wr_id) + " (" + name(request.op) + " of " +
                      std::to_string(request.bytes) + " bytes";
    if (qpn != 0) out += " on queue pair " + qpn_text(qpn);
    return out + ")";
}

}  // namespace feroce::lint
