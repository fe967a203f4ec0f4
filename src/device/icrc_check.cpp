#include "device/icrc_check.hpp"

#include <bit>

#include "wire/icrc.hpp"

namespace feroce::device {

namespace {

// Spreads neighbouring addresses over the sets. It need not resist an enemy: one who can send from
// many addresses can also compute an ICRC.
std::size_t hash(const Gid& address) {
    const auto words = std::bit_cast<std::array<std::uint64_t, 2>>(address.raw);
    const std::uint64_t h = (words[0] ^ std::rotl(words[1], 32)) * 0x9e37'79b9'7f4a'7c15;
    return static_cast<std::size_t>(h ^ h >> 32);
}

}  // namespace

IcrcCheck::IcrcCheck() : sets_(kSets) {}

IcrcVerdict IcrcCheck::verify(Instant now, const Datagram& datagram) {
    const wire::DatagramAddress address{datagram.source, datagram.destination, datagram.source_port,
                                        wire::kRocePort};
    Source& source = source_of(now, datagram.source);
    if (wire::verify(address, datagram.id_hint, datagram.bytes))
        return accept(now, source, datagram.id_hint, sign_of(false, false, datagram.id_hint));
    if (!datagram.destination.is_v4()) return reject(source, IcrcVerdict::Bad);
    const auto id = wire::solve_id(address, datagram.bytes);
    if (!id) return reject(source, IcrcVerdict::Bad);
    if (!believable(now, source, *id)) return reject(source, IcrcVerdict::Unsolvable);
    return accept(now, source, *id, sign_of(true, is_new(now, source), *id));
}

bool IcrcCheck::believable(Instant now, const Source& source, std::uint16_t id) {
    struct Belief {
        bool segment_ids;
        std::uint16_t lead;  // Over its last id.
    };
    static constexpr std::array<Belief, 5> kBeliefs{{
        {false, 0},            // Unknown: such a source is new.
        {false, kSegmentIds},  // AsPredicted
        {true, kSegmentIds},   // Segments
        {false, kIdLead},      // Counts
        {true, kIdLead},       // Both
    }};
    if (is_new(now, source)) return true;
    const Belief& belief = kBeliefs[static_cast<std::size_t>(source.habit)];
    if (id < kSegmentIds && belief.segment_ids) return true;
    return static_cast<std::uint16_t>(id - source.last_id) <= belief.lead;
}

IcrcCheck::Sign IcrcCheck::sign_of(bool solved, bool stranger, std::uint16_t id) {
    const bool segment = id < kSegmentIds;
    if (!solved) return segment ? Sign::PredictedSegment : Sign::PredictedOther;
    if (!segment) return Sign::SolvedOther;
    return stranger ? Sign::StrangersSegment : Sign::SolvedSegment;
}

IcrcCheck::Habit IcrcCheck::after(Habit habit, Sign sign) {
    using enum Habit;
    // By habit; then by sign: predicted segment, predicted other, solved segment, solved other,
    // stranger's segment.
    static constexpr std::array<std::array<Habit, 5>, 5> kNext{{
        {Segments, AsPredicted, Segments, Counts, Both},  // Unknown
        {Segments, AsPredicted, Segments, Counts, Both},  // AsPredicted
        {Segments, Segments, Segments, Both, Both},       // Segments
        {Both, Counts, Both, Counts, Both},               // Counts
        {Both, Both, Both, Both, Both},                   // Both
    }};
    return kNext[static_cast<std::size_t>(habit)][static_cast<std::size_t>(sign)];
}

bool IcrcCheck::is_new(Instant now, const Source& source) {
    return source.good == 0 || now - source.last_good >= kSilence;
}

IcrcVerdict IcrcCheck::accept(Instant now, Source& source, std::uint16_t id, Sign sign) {
    // An id that starts from 0 with each send must not lose us the place of one that counts on.
    const auto lead = static_cast<std::uint16_t>(id - source.last_id);
    const bool counts_on = lead <= kIdLead || now - source.last_good >= kSilence;
    if (source.good == 0 || counts_on || id >= kSegmentIds) source.last_id = id;
    source.habit = after(source.habit, sign);
    source.last_good = now;
    ++source.good;
    return IcrcVerdict::Good;
}

IcrcVerdict IcrcCheck::reject(Source& source, IcrcVerdict verdict) {
    ++source.bad;
    return verdict;
}

IcrcCheck::Source& IcrcCheck::source_of(Instant now, const Gid& address) {
    if (last_ == nullptr || last_->address != address) last_ = &find(address);
    last_->last_heard = now;
    return *last_;
}

IcrcCheck::Source& IcrcCheck::find(const Gid& address) {
    Set& set = sets_[hash(address) % kSets];
    Source* oldest = &set[0];
    for (Source& source : set) {
        if (source.used && source.address == address) return source;
        const bool older = !source.used || source.last_heard < oldest->last_heard;
        if (oldest->used && older) oldest = &source;
    }
    *oldest = Source{};
    oldest->address = address;
    oldest->used = true;
    return *oldest;
}

std::optional<Gid> IcrcCheck::never_verified(std::uint64_t threshold) const {
    for (const Set& set : sets_)
        for (const Source& source : set)
            if (source.used && source.good == 0 && source.bad >= threshold) return source.address;
    return std::nullopt;
}

}  // namespace feroce::device
