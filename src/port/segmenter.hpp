// Segmenter: turns runs into sends. A send is what one message to the kernel holds: a whole run,
// which the kernel cuts into packets, or one packet. Sends keep the order of the packets. When the
// kernel refuses to cut, the sender tells so, and goes on with packets from where it is. Pure:
// knows no socket.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

#include "base/bytes.hpp"
#include "transport/transmit_batch.hpp"

namespace feroce::port {

struct Send {
    const transport::TransmitRun* run;
    ByteSpan bytes;
    std::uint32_t packets;

    bool is_segmented() const { return packets > 1; }
    std::size_t packet_bytes() const;  // Of the longest packet.
};

class Segmenter {
public:
    enum class Cutting : std::uint8_t { ByKernel, Here };

    // The runs outlive the segmenter.
    Segmenter(std::span<const transport::TransmitRun> runs, Cutting cutting)
        : runs_(runs), cutting_(cutting) {}

    bool finished() const { return runs_.empty(); }
    // The sends that come next, as many as fit. They stay next until advance().
    std::span<const Send> upcoming(std::span<Send> room) const;
    void advance(std::size_t sends);  // That many are done with, sent or dropped.

    void cut_next();  // The next send's run goes packet by packet; those behind it do not.
    void cut_all();   // From here on every run does.

private:
    // Where a send begins. Only a run that is cut is left in the middle.
    struct Place {
        std::size_t run = 0;
        std::size_t offset = 0;
    };
    Send send_at(const Place& place) const;
    Place behind(const Place& place, const Send& send) const;

    std::span<const transport::TransmitRun> runs_;  // The first one may be sent in part.
    std::size_t offset_ = 0;                        // So much of it.
    Cutting cutting_;
    bool first_is_cut_ = false;
};

// The packets of a run, one after the other.
template <class Each>
void for_each_packet(ByteSpan run, std::size_t segment_size, Each&& each) {
    while (!run.empty()) {
        const ByteSpan packet = run.first(std::min(segment_size, run.size()));
        run = run.subspan(packet.size());
        each(packet);
    }
}

}  // namespace feroce::port
