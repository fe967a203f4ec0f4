// Each message is described once, by fields(): the widths of its fields in wire order. Parse and
// emit both walk that list, so they cannot disagree.
#include "wire/cm_messages.hpp"

#include <algorithm>
#include <cstring>
#include <type_traits>

#include "base/assert.hpp"
#include "wire/cm_path_messages.hpp"

namespace feroce::wire {

namespace {

// Takes fields off the front, most significant bit first.
class Reader {
public:
    explicit Reader(CmView bytes) : bytes_(bytes) {}

    template <class T>
    void field(std::size_t width, T& value) {
        const std::uint64_t raw = take(width);
        if constexpr (requires { value.raw; })
            value.raw = static_cast<decltype(value.raw)>(raw);
        else if constexpr (std::is_same_v<T, Psn>)
            value = Psn(static_cast<std::uint32_t>(raw));
        else
            value = static_cast<T>(raw);
    }
    void skip(std::size_t width) { take(width); }
    void field(Gid& gid) { take_bytes(gid.raw.data(), gid.raw.size()); }
    template <std::size_t kBytes>
    void field(std::array<std::byte, kBytes>& bytes) {
        take_bytes(bytes.data(), kBytes);
    }
    bool at_end() const { return bit_ == kCmMessageSize * 8; }

private:
    // Most of a message: so these are not taken bit by bit.
    void take_bytes(void* to, std::size_t count) {
        ASSERT(bit_ % 8 == 0);
        std::memcpy(to, bytes_.subspan(bit_ / 8, count).data(), count);
        bit_ += 8 * count;
    }
    std::uint64_t take(std::size_t width) {
        std::uint64_t value = 0;
        if (bit_ % 8 == 0 && width % 8 == 0) {
            for (; width > 0; width -= 8, bit_ += 8) value = value << 8 | byte_at(bytes_, bit_ / 8);
            return value;
        }
        while (width > 0) {
            const std::size_t room = 8 - bit_ % 8, step = std::min(room, width);
            const std::uint32_t bits = byte_at(bytes_, bit_ / 8) >> (room - step);
            value = value << step | (bits & ((1u << step) - 1));
            bit_ += step;
            width -= step;
        }
        return value;
    }

    CmView bytes_;
    std::size_t bit_ = 0;
};

// Puts fields to the front of zeroed bytes; what is wider than its field is cut.
class Writer {
public:
    explicit Writer(CmSpan bytes) : bytes_(bytes) {
        std::fill(bytes.begin(), bytes.end(), std::byte{0});
    }

    template <class T>
    void field(std::size_t width, const T& value) {
        if constexpr (requires { value.raw + 0; })
            put(width, value.raw);
        else if constexpr (std::is_same_v<T, Psn>)
            put(width, value.raw());
        else
            put(width, static_cast<std::uint64_t>(value));
    }
    void skip(std::size_t width) { put(width, 0); }
    void field(const Gid& gid) { put_bytes(gid.raw.data(), gid.raw.size()); }
    template <std::size_t kBytes>
    void field(const std::array<std::byte, kBytes>& bytes) {
        put_bytes(bytes.data(), kBytes);
    }
    bool at_end() const { return bit_ == kCmMessageSize * 8; }

private:
    void put_bytes(const void* from, std::size_t count) {
        ASSERT(bit_ % 8 == 0);
        std::memcpy(bytes_.subspan(bit_ / 8, count).data(), from, count);
        bit_ += 8 * count;
    }
    void put(std::size_t width, std::uint64_t value) {
        if (bit_ % 8 == 0 && width % 8 == 0) {
            for (; width > 0; width -= 8, bit_ += 8)
                bytes_[bit_ / 8] = static_cast<std::byte>(value >> (width - 8));
            return;
        }
        while (width > 0) {
            const std::size_t room = 8 - bit_ % 8, step = std::min(room, width);
            const std::uint64_t bits = value >> (width - step) & ((1u << step) - 1);
            bytes_[bit_ / 8] |= static_cast<std::byte>(bits << (room - step));
            bit_ += step;
            width -= step;
        }
    }

    CmSpan bytes_;
    std::size_t bit_ = 0;
};

template <class Codec>
void fields(Codec& c, CmPath& m) {
    c.field(16, m.local_lid);
    c.field(16, m.remote_lid);
    c.field(m.local_gid);
    c.field(m.remote_gid);
    c.field(20, m.flow_label);
    c.skip(6);
    c.field(6, m.packet_rate);
    c.field(8, m.traffic_class);
    c.field(8, m.hop_limit);
    c.field(4, m.service_level);
    c.field(1, m.subnet_local);
    c.skip(3);
    c.field(5, m.local_ack_timeout);
    c.skip(3);
}

template <class Codec>
void fields(Codec& c, CmReq& m) {
    c.field(32, m.local_id);
    c.skip(32);
    c.field(64, m.service_id);
    c.field(64, m.local_ca_guid);
    c.skip(32);
    c.field(32, m.local_qkey);
    c.field(24, m.local_qpn);
    c.field(8, m.responder_resources);
    c.field(24, m.local_eecn);
    c.field(8, m.initiator_depth);
    c.field(24, m.remote_eecn);
    c.field(5, m.remote_response_timeout);
    c.field(2, m.transport);
    c.field(1, m.end_to_end_flow_control);
    c.field(24, m.starting_psn);
    c.field(5, m.local_response_timeout);
    c.field(3, m.retry_count);
    c.field(16, m.pkey);
    c.field(4, m.path_mtu);
    c.field(1, m.rdc_exists);
    c.field(3, m.rnr_retry_count);
    c.field(4, m.max_cm_retries);
    c.field(1, m.srq);
    c.field(3, m.extended_transport);
    fields(c, m.primary);
    fields(c, m.alternate);
    c.field(m.private_data);
}

template <class Codec>
void fields(Codec& c, CmMra& m) {
    c.field(32, m.local_id);
    c.field(32, m.remote_id);
    c.field(2, m.answered);
    c.skip(6);
    c.field(5, m.service_timeout);
    c.skip(3);
    c.field(m.private_data);
}

template <class Codec>
void fields(Codec& c, CmRej& m) {
    c.field(32, m.local_id);
    c.field(32, m.remote_id);
    c.field(2, m.answered);
    c.skip(6);
    c.field(7, m.additional_info_size);
    c.skip(1);
    c.field(16, m.reason);
    c.field(m.additional_info);
    c.field(m.private_data);
}

template <class Codec>
void fields(Codec& c, CmRep& m) {
    c.field(32, m.local_id);
    c.field(32, m.remote_id);
    c.field(32, m.local_qkey);
    c.field(24, m.local_qpn);
    c.skip(8);
    c.field(24, m.local_eecn);
    c.skip(8);
    c.field(24, m.starting_psn);
    c.skip(8);
    c.field(8, m.responder_resources);
    c.field(8, m.initiator_depth);
    c.field(5, m.target_ack_delay);
    c.field(2, m.failover_accepted);
    c.field(1, m.end_to_end_flow_control);
    c.field(3, m.rnr_retry_count);
    c.field(1, m.srq);
    c.skip(4);
    c.field(64, m.local_ca_guid);
    c.field(m.private_data);
}

template <class Codec>
void fields(Codec& c, CmRtu& m) {
    c.field(32, m.local_id);
    c.field(32, m.remote_id);
    c.field(m.private_data);
}

template <class Codec>
void fields(Codec& c, CmDreq& m) {
    c.field(32, m.local_id);
    c.field(32, m.remote_id);
    c.field(24, m.remote_qpn);
    c.skip(8);
    c.field(m.private_data);
}

template <class Codec>
void fields(Codec& c, CmDrep& m) {
    c.field(32, m.local_id);
    c.field(32, m.remote_id);
    c.field(m.private_data);
}

template <class Codec>
void fields(Codec& c, CmAlive& m) {
    c.field(32, m.local_id);
    c.field(32, m.remote_id);
    c.field(1, m.answer);
    c.skip(7);
    c.field(m.private_data);
}

template <class Codec>
void fields(Codec& c, CmLap& m) {
    c.field(32, m.local_id);
    c.field(32, m.remote_id);
    c.skip(32);
    c.field(24, m.remote_qpn);
    c.field(5, m.remote_response_timeout);
    c.skip(3 + 32);
    c.field(16, m.alternate.local_lid);
    c.field(16, m.alternate.remote_lid);
    c.field(m.alternate.local_gid);
    c.field(m.alternate.remote_gid);
    c.field(20, m.alternate.flow_label);
    c.skip(4);
    c.field(8, m.alternate.traffic_class);
    c.field(8, m.alternate.hop_limit);
    c.skip(2);
    c.field(6, m.alternate.packet_rate);
    c.field(4, m.alternate.service_level);
    c.field(1, m.alternate.subnet_local);
    c.skip(3);
    c.field(5, m.alternate.local_ack_timeout);
    c.skip(3);
    c.field(m.private_data);
}

template <class Codec>
void fields(Codec& c, CmApr& m) {
    c.field(32, m.local_id);
    c.field(32, m.remote_id);
    c.field(8, m.additional_info_size);
    c.field(8, m.status);
    c.skip(16);
    c.field(m.additional_info);
    c.field(m.private_data);
}

template <class Codec>
void fields(Codec& c, CmSidrReq& m) {
    c.field(32, m.request_id);
    c.field(16, m.pkey);
    c.skip(16);
    c.field(64, m.service_id);
    c.field(m.private_data);
}

template <class Codec>
void fields(Codec& c, CmSidrRep& m) {
    c.field(32, m.request_id);
    c.field(8, m.status);
    c.field(8, m.additional_info_size);
    c.skip(16);
    c.field(24, m.qpn);
    c.skip(8);
    c.field(64, m.service_id);
    c.field(32, m.qkey);
    c.field(m.additional_info);
    c.field(m.private_data);
}

template <class Message>
Message parse_message(CmView b) {
    Message message;
    Reader reader(b);
    fields(reader, message);
    ASSERT(reader.at_end());
    return message;
}

template <class Message>
void emit_message(Message message, CmSpan b) {
    Writer writer(b);
    fields(writer, message);
    ASSERT(writer.at_end());
}

constexpr const char* kReasonTexts[] = {
    "?",
    "no queue pair available",
    "no end-to-end context available",
    "no resources available",
    "timeout",
    "unsupported request",
    "invalid communication id",
    "invalid communication instance",
    "invalid service id: nobody listens",
    "invalid transport service type",
    "stale connection",
    "reliable datagram channel does not exist",
    "primary remote GID rejected",
    "primary remote LID rejected",
    "invalid primary service level",
    "invalid primary traffic class",
    "invalid primary hop limit",
    "invalid primary packet rate",
    "alternate remote GID rejected",
    "alternate remote LID rejected",
    "invalid alternate service level",
    "invalid alternate traffic class",
    "invalid alternate hop limit",
    "invalid alternate packet rate",
    "redirected to another port and connection manager",
    "redirected to another port",
    "invalid path MTU",
    "insufficient responder resources",
    "rejected by the consumer",
    "RNR retry count rejected",
    "duplicate local communication id",
    "invalid class version",
    "invalid primary flow label",
    "invalid alternate flow label",
};

}  // namespace

const char* to_string(RejectReason reason) {
    const auto index = static_cast<std::size_t>(reason);
    return index < std::size(kReasonTexts) ? kReasonTexts[index] : kReasonTexts[0];
}

CmReq CmReq::parse(CmView b) {
    return parse_message<CmReq>(b);
}
void CmReq::emit(CmSpan b) const {
    emit_message(*this, b);
}

CmMra CmMra::parse(CmView b) {
    return parse_message<CmMra>(b);
}
void CmMra::emit(CmSpan b) const {
    emit_message(*this, b);
}

CmRej CmRej::parse(CmView b) {
    return parse_message<CmRej>(b);
}
void CmRej::emit(CmSpan b) const {
    emit_message(*this, b);
}

CmRep CmRep::parse(CmView b) {
    return parse_message<CmRep>(b);
}
void CmRep::emit(CmSpan b) const {
    emit_message(*this, b);
}

CmRtu CmRtu::parse(CmView b) {
    return parse_message<CmRtu>(b);
}
void CmRtu::emit(CmSpan b) const {
    emit_message(*this, b);
}

CmDreq CmDreq::parse(CmView b) {
    return parse_message<CmDreq>(b);
}
void CmDreq::emit(CmSpan b) const {
    emit_message(*this, b);
}

CmDrep CmDrep::parse(CmView b) {
    return parse_message<CmDrep>(b);
}
void CmDrep::emit(CmSpan b) const {
    emit_message(*this, b);
}

CmAlive CmAlive::parse(CmView b) {
    return parse_message<CmAlive>(b);
}
void CmAlive::emit(CmSpan b) const {
    emit_message(*this, b);
}

CmLap CmLap::parse(CmView b) {
    return parse_message<CmLap>(b);
}
void CmLap::emit(CmSpan b) const {
    emit_message(*this, b);
}

CmApr CmApr::parse(CmView b) {
    return parse_message<CmApr>(b);
}
void CmApr::emit(CmSpan b) const {
    emit_message(*this, b);
}

CmSidrReq CmSidrReq::parse(CmView b) {
    return parse_message<CmSidrReq>(b);
}
void CmSidrReq::emit(CmSpan b) const {
    emit_message(*this, b);
}

CmSidrRep CmSidrRep::parse(CmView b) {
    return parse_message<CmSidrRep>(b);
}
void CmSidrRep::emit(CmSpan b) const {
    emit_message(*this, b);
}

}  // namespace feroce::wire
