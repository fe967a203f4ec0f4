// Trace: what happened in a run, as a hash that two runs of one seed must share, and, when asked
// for, as a capture and as lines for a person.
#pragma once

#include <cstdint>
#include <cstdio>
#include <memory>
#include <string>

#include "base/time.hpp"
#include "sim/frame.hpp"
#include "wire/pcapng.hpp"

namespace feroce::sim {

enum class TraceEvent : std::uint8_t { Sent, Delivered, Dropped, Duplicated, Corrupted, Completed };

class Trace {
public:
    std::uint64_t hash() const { return hash_; }
    std::uint64_t count(TraceEvent event) const { return counts_[static_cast<std::size_t>(event)]; }

    void capture_to(std::FILE* file);  // pcapng of every frame sent. Borrowed until the end.
    void print_to(std::FILE* file) { text_ = file; }

    // `where` names a node or a link; it is part of the hash.
    void frame(Instant now, TraceEvent event, std::uint32_t where, const Frame& frame);
    void value(Instant now, TraceEvent event, std::uint32_t where, std::uint64_t value);
    // Text only; made only if somebody reads it.
    template <class MakeText>
    void note(Instant now, MakeText make_text) {
        if (text_ != nullptr) print(now, make_text());
    }

private:
    void print(Instant now, const std::string& text);
    void mix(std::uint64_t word);
    void mix_bytes(ByteView bytes);
    void head(Instant now, TraceEvent event, std::uint32_t where);

    std::uint64_t hash_ = 0xcbf2'9ce4'8422'2325;  // FNV-1a's offset basis.
    std::uint64_t counts_[6] = {};
    std::unique_ptr<wire::PcapngWriter> writer_;
    std::FILE* text_ = nullptr;
};

}  // namespace feroce::sim
