#include "sim/check/shadow_checker.hpp"

#include <algorithm>
#include <cstring>

namespace feroce::sim {

namespace {

std::string place_of(std::uint32_t node, std::uint64_t offset) {
    return "node " + std::to_string(node) + " byte " + std::to_string(offset);
}

}  // namespace

void ShadowChecker::attach() {
    copies_.clear();
    for (std::size_t i = 0; i < world_.size(); ++i) {
        const ByteSpan all = world_.node(i).arena().all();
        copies_.push_back({{all.begin(), all.end()}, {}});
    }
}

void ShadowChecker::write(std::uint32_t node, Range range, const Pattern& pattern) {
    const ByteSpan target = world_.node(node).arena().bytes(range);
    pattern.fill(target);
    take(node, range);
}

void ShadowChecker::open(std::uint32_t node, Range place, Range range, const Pattern& pattern) {
    Open& entry = copies_[node].open[place.offset];
    entry.length = place.length;
    entry.candidates.push_back({range, pattern});
}

void ShadowChecker::open_to_all(std::uint32_t node, Range place) {
    copies_[node].open[place.offset] = {place.length, true, {}};
}

void ShadowChecker::exempt(std::uint32_t node, Range place) {
    open_to_all(node, place);
}

void ShadowChecker::close_exact(std::uint32_t node, Range place, Range range,
                                const Pattern& pattern) {
    copies_[node].open.erase(place.offset);
    const ByteSpan actual = world_.node(node).arena().bytes(range);
    const std::size_t bad = pattern.mismatch(actual);
    if (bad < actual.size()) {
        report_.fail(kName, place_of(node, range.offset + bad) + ": byte " + std::to_string(bad) +
                                " of " + std::to_string(range.length) +
                                " of a transfer that succeeded is wrong");
    }
    take(node, range);
    compare(node, place);
}

bool ShadowChecker::explained(std::uint32_t node, const Open& open, std::uint64_t offset) const {
    const std::byte actual = world_.node(node).arena().bytes({offset, 1})[0];
    if (actual == copies_[node].bytes[offset]) return true;
    return std::any_of(open.candidates.begin(), open.candidates.end(), [&](const Candidate& c) {
        return offset >= c.range.offset && offset < c.range.end() &&
               actual == c.pattern.at(offset - c.range.offset);
    });
}

void ShadowChecker::close_failed(std::uint32_t node, Range place) {
    const auto found = copies_[node].open.find(place.offset);
    if (found == copies_[node].open.end()) return;
    for (std::uint64_t offset = place.offset; offset < place.end(); ++offset) {
        if (explained(node, found->second, offset)) continue;
        report_.fail(kName, place_of(node, offset) + ": neither what was there nor what was sent");
        break;
    }
    close_unseen(node, place);
}

void ShadowChecker::close_unseen(std::uint32_t node, Range place) {
    copies_[node].open.erase(place.offset);
    take(node, place);
}

void ShadowChecker::take(std::uint32_t node, Range range) {
    const ByteSpan actual = world_.node(node).arena().bytes(range);
    std::copy(actual.begin(), actual.end(),
              copies_[node].bytes.begin() + static_cast<std::ptrdiff_t>(range.offset));
}

void ShadowChecker::close_received(std::uint32_t node, Range place, std::uint64_t length) {
    take(node, {place.offset, length});
    copies_[node].open.erase(place.offset);
    compare(node, place);
}

void ShadowChecker::compare(std::uint32_t node, Range range) {
    const ByteSpan actual = world_.node(node).arena().bytes(range);
    const std::byte* expected = copies_[node].bytes.data() + range.offset;
    if (range.length == 0 || std::memcmp(actual.data(), expected, range.length) == 0) return;
    const auto bad = std::mismatch(actual.begin(), actual.end(), expected).first;
    report_.fail(kName,
                 place_of(node, range.offset + static_cast<std::uint64_t>(bad - actual.begin())) +
                     " changed though nothing was on its way to it");
}

void ShadowChecker::check() {
    for (std::uint32_t node = 0; node < copies_.size(); ++node) {
        std::uint64_t at = 0;
        for (const auto& [offset, open] : copies_[node].open) {
            compare(node, {at, offset - at});
            at = offset + open.length;
        }
        compare(node, {at, world_.node(node).arena().size() - at});
    }
}

void GuardChecker::check() {
    for (std::size_t i = 0; i < world_.size(); ++i) {
        if (const auto bad = world_.node(i).arena().broken_guard())
            report_.fail(kName, place_of(static_cast<std::uint32_t>(i), *bad) +
                                    ": a guard byte outside all regions changed");
    }
}

}  // namespace feroce::sim
