// The snapshot as bytes: fixed little records of the machine's own byte order, strings with their
// length. The reader never trusts a count or a length.
#include <algorithm>
#include <cstring>
#include <type_traits>

#include "process/state_page.hpp"

namespace feroce::process {
namespace {

constexpr std::uint32_t kMagic = 0x4645'0008;  // Changes with the layout.
constexpr std::size_t kTextMax = 1024;

class Writer {
public:
    template <class T>
    void put(const T& value) {
        static_assert(std::is_trivially_copyable_v<T>);
        const auto* bytes = reinterpret_cast<const std::byte*>(&value);
        out.insert(out.end(), bytes, bytes + sizeof value);
    }
    void put(const std::string& text) {
        const auto length = static_cast<std::uint32_t>(std::min(text.size(), kTextMax));
        put(length);
        const auto* bytes = reinterpret_cast<const std::byte*>(text.data());
        out.insert(out.end(), bytes, bytes + length);
    }
    void put_count(std::size_t count) { put(static_cast<std::uint32_t>(count)); }

    std::vector<std::byte> out;
};

class Reader {
public:
    explicit Reader(ByteView bytes) : rest_(bytes) {}

    bool good() const { return good_; }
    template <class T>
    T get() {
        static_assert(std::is_trivially_copyable_v<T>);
        T value{};
        if (!take(sizeof value)) return value;
        std::memcpy(&value, taken_.data(), sizeof value);
        return value;
    }
    std::string text() {
        const auto length = get<std::uint32_t>();
        if (length > kTextMax || !take(length)) {
            good_ = false;
            return {};
        }
        std::string out(length, '?');
        for (std::size_t i = 0; i < length; ++i) {
            const auto c = std::to_integer<char>(taken_[i]);
            if (c >= ' ' && c <= '~') out[i] = c;
        }
        return out;
    }
    // Calls `read` as often as a count says, but not beyond the end.
    template <class F>
    void list(F&& read) {
        const auto count = get<std::uint32_t>();
        for (std::uint32_t i = 0; i < count && good_; ++i) read();
    }

private:
    bool take(std::size_t size) {
        good_ = good_ && rest_.size() >= size;
        if (!good_) return false;
        taken_ = rest_.first(size);
        rest_ = rest_.subspan(size);
        return true;
    }
    ByteView rest_;
    ByteView taken_;
    bool good_ = true;
};

StateResources get_resources(Reader& in) {
    StateResources resources;
    resources.device = in.text();
    for (std::uint32_t* count :
         {&resources.contexts, &resources.pds, &resources.cqs, &resources.regions, &resources.srqs})
        *count = in.get<std::uint32_t>();
    return resources;
}

StateError get_error(Reader& in) {
    StateError error;
    error.status = in.text();
    error.cause = in.text();
    error.at_responder = in.get<std::uint8_t>() != 0;
    error.count = in.get<std::uint64_t>();
    return error;
}

StateReason get_reason(Reader& in) {
    StateReason reason;
    reason.qpn = in.get<std::uint32_t>();
    reason.peer_qpn = in.get<std::uint32_t>();
    reason.psn = in.get<std::uint32_t>();
    reason.kind = static_cast<StateReasonKind>(in.get<std::uint8_t>());
    reason.peer_silent = in.get<std::uint8_t>() != 0;
    reason.with_peer = in.get<std::uint8_t>() != 0;
    reason.minor = in.get<std::uint8_t>() != 0;
    reason.source = in.get<Gid>();
    reason.destination = in.get<Gid>();
    reason.sentence = in.text();
    return reason;
}

}  // namespace

std::vector<std::byte> encode(const StateSnapshot& snapshot) {
    Writer out;
    out.put(kMagic);
    out.put(snapshot.pid);
    out.put(static_cast<std::uint8_t>(snapshot.finished));
    out.put(snapshot.command);
    out.put_count(snapshot.devices.size());
    for (const std::string& device : snapshot.devices) out.put(device);
    out.put_count(snapshot.resources.size());
    for (const StateResources& resources : snapshot.resources) {
        out.put(resources.device);
        for (const std::uint32_t count :
             {resources.contexts, resources.pds, resources.cqs, resources.regions, resources.srqs})
            out.put(count);
    }
    out.put(snapshot.network);
    out.put_count(snapshot.slots.size());
    for (const SlotNumber slot : snapshot.slots) out.put(slot);
    out.put_count(snapshot.counters.size());
    for (const StateCounter& counter : snapshot.counters) {
        out.put(counter.name);
        out.put(counter.value);
    }
    out.put_count(snapshot.errors.size());
    for (const StateError& error : snapshot.errors) {
        out.put(error.status);
        out.put(error.cause);
        out.put(static_cast<std::uint8_t>(error.at_responder));
        out.put(error.count);
    }
    out.put_count(snapshot.reasons.size());
    for (const StateReason& reason : snapshot.reasons) {
        out.put(reason.qpn);
        out.put(reason.peer_qpn);
        out.put(reason.psn);
        out.put(static_cast<std::uint8_t>(reason.kind));
        out.put(static_cast<std::uint8_t>(reason.peer_silent));
        out.put(static_cast<std::uint8_t>(reason.with_peer));
        out.put(static_cast<std::uint8_t>(reason.minor));
        out.put(reason.source);
        out.put(reason.destination);
        out.put(reason.sentence);
    }
    out.put(snapshot.qps_left_out);
    out.put_count(snapshot.qps.size());
    for (const StateQp& qp : snapshot.qps) out.put(qp);
    return std::move(out.out);
}

std::optional<StateSnapshot> decode(ByteView bytes) {
    Reader in(bytes);
    if (in.get<std::uint32_t>() != kMagic) return std::nullopt;
    StateSnapshot out;
    out.pid = in.get<std::uint32_t>();
    out.finished = in.get<std::uint8_t>() != 0;
    out.command = in.text();
    in.list([&] { out.devices.push_back(in.text()); });
    in.list([&] { out.resources.push_back(get_resources(in)); });
    out.network = in.get<std::uint64_t>();
    in.list([&] { out.slots.push_back(in.get<SlotNumber>()); });
    in.list([&] {
        StateCounter counter;
        counter.name = in.text();
        counter.value = in.get<std::uint64_t>();
        out.counters.push_back(std::move(counter));
    });
    in.list([&] { out.errors.push_back(get_error(in)); });
    in.list([&] { out.reasons.push_back(get_reason(in)); });
    out.qps_left_out = in.get<std::uint32_t>();
    in.list([&] { out.qps.push_back(in.get<StateQp>()); });
    if (!in.good()) return std::nullopt;
    return out;
}

}  // namespace feroce::process
