#include "port/faults.hpp"

#include <charconv>
#include <cstdlib>
#include <string>

#include "base/random.hpp"
#include "wire/opcode.hpp"

namespace feroce::port {
namespace {

bool parse_rate(const std::string& text, double& out) {
    char* end = nullptr;
    out = std::strtod(text.c_str(), &end);
    return !text.empty() && *end == '\0' && out >= 0 && out <= 1;
}

bool parse_one(std::string_view name, const std::string& value, FaultRates& out) {
    if (name == "drop") return parse_rate(value, out.drop);
    if (name == "dup") return parse_rate(value, out.duplicate);
    if (name == "reorder") return parse_rate(value, out.reorder);
    if (name == "corrupt") return parse_rate(value, out.corrupt);
    if (name != "seed") return false;
    const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), out.seed);
    return error == std::errc() && end == value.data() + value.size();
}

bool is_response(ByteView packet) {
    const auto opcode = static_cast<wire::Opcode>(packet[0]);
    const wire::Verb verb = wire::opcode_info(opcode).verb;
    return verb == wire::Verb::Ack || verb == wire::Verb::AtomicAck ||
           verb == wire::Verb::ReadResponse;
}

}  // namespace

std::optional<FaultRates> parse_faults(std::string_view text) {
    FaultRates out;
    while (!text.empty()) {
        const std::string_view item = text.substr(0, text.find(','));
        text.remove_prefix(std::min(item.size() + 1, text.size()));
        const std::size_t equals = item.find('=');
        if (equals == std::string_view::npos) return std::nullopt;
        if (!parse_one(item.substr(0, equals), std::string(item.substr(equals + 1)), out))
            return std::nullopt;
    }
    return out;
}

FaultInjector::Fate FaultInjector::next(ByteView packet) {
    const Flow flow{load_be24(packet.subspan(5).first<3>()), is_response(packet)};
    const auto [found, fresh] = flows_.try_emplace(flow);
    if (fresh) found->second.ordinal = flows_.size();
    Progress& progress = found->second;
    // A generator of its own for each packet: its fate hangs on nothing but seed, flow and place.
    Prng random(rates_.seed * 0x9e37'79b9'7f4a'7c15 + (progress.ordinal << 40) +
                progress.packets++);
    Fate fate;
    fate.drop = random.chance(rates_.drop);
    fate.duplicate = random.chance(rates_.duplicate);
    fate.hold = random.chance(rates_.reorder);
    if (random.chance(rates_.corrupt)) fate.flip_seed = random.next() | 1;
    return fate;
}

void FaultInjector::flip_bits(ByteSpan packet, std::uint64_t flip_seed) {
    Prng random(flip_seed);
    const std::uint64_t count = 1 + random.below(64);
    for (std::uint64_t i = 0; i < count; ++i) {
        const std::uint64_t bit = random.below(packet.size() * 8);
        packet[bit / 8] ^= std::byte{1} << static_cast<int>(bit % 8);
    }
}

}  // namespace feroce::port
