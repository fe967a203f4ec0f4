#include "port/segmenter.hpp"

#include "base/assert.hpp"

namespace feroce::port {

using transport::TransmitRun;

std::size_t Send::packet_bytes() const {
    return std::min<std::size_t>(run->segment_size, bytes.size());
}

Send Segmenter::send_at(const Place& place) const {
    const TransmitRun& run = runs_[place.run];
    const bool cut = cutting_ == Cutting::Here || (place.run == 0 && first_is_cut_);
    if (!cut || run.packet_count == 1) return {&run, run.bytes, run.packet_count};
    const ByteSpan rest = run.bytes.subspan(place.offset);
    return {&run, rest.first(std::min<std::size_t>(run.segment_size, rest.size())), 1};
}

Segmenter::Place Segmenter::behind(const Place& place, const Send& send) const {
    const std::size_t end = place.offset + send.bytes.size();
    if (end < send.run->bytes.size()) return {place.run, end};
    return {place.run + 1, 0};
}

std::span<const Send> Segmenter::upcoming(std::span<Send> room) const {
    Place place{0, offset_};
    std::size_t count = 0;
    while (count < room.size() && place.run < runs_.size()) {
        room[count] = send_at(place);
        place = behind(place, room[count++]);
    }
    return room.first(count);
}

void Segmenter::advance(std::size_t sends) {
    Place place{0, offset_};
    for (; sends > 0; --sends) {
        ASSERT(place.run < runs_.size());
        place = behind(place, send_at(place));
    }
    if (place.run > 0) first_is_cut_ = false;
    runs_ = runs_.subspan(place.run);
    offset_ = place.offset;
}

void Segmenter::cut_next() {
    first_is_cut_ = true;
}

void Segmenter::cut_all() {
    cutting_ = Cutting::Here;
}

}  // namespace feroce::port
