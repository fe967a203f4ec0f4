// What an NBD client says before its first request, from bytes that anyone may have sent: it is
// understood the same however the bytes are cut, memory stays bounded, and nothing is taken twice.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/assert.hpp"
#include "block/nbd/negotiation.hpp"

namespace {

using namespace feroce;
using namespace feroce::block::nbd;

struct Outcome {
    Negotiation::State state;
    std::vector<std::byte> said;
    std::size_t rest = 0;  // Not taken.
};

Outcome negotiate(ByteView heard, std::size_t step, bool has_disk) {
    Negotiation negotiation;
    std::vector<std::byte> waiting;
    while (!heard.empty()) {
        const ByteView part = heard.first(std::min(step, heard.size()));
        heard = heard.subspan(part.size());
        waiting.insert(waiting.end(), part.begin(), part.end());
        for (;;) {
            const std::size_t used = negotiation.take(waiting);
            ASSERT(used <= waiting.size());
            waiting.erase(waiting.begin(), waiting.begin() + static_cast<std::ptrdiff_t>(used));
            if (negotiation.state() != Negotiation::State::Asks) break;
            if (has_disk)
                negotiation.describe({});
            else
                negotiation.refuse();
        }
        // What it waits for has an end.
        if (negotiation.state() == Negotiation::State::Hears)
            ASSERT(waiting.size() < Negotiation::kOptionMax + 16);
    }
    return {negotiation.state(), negotiation.output(), waiting.size()};
}

void try_request(ByteView data) {
    if (data.size() < Request::kSize) return;
    const auto request = Request::parse(data.first<Request::kSize>());
    if (!request) return;
    std::array<std::byte, Reply::kSize> bytes;
    Reply{0, request->cookie}.emit(bytes);
    ASSERT(std::equal(bytes.begin() + 8, bytes.end(), data.begin() + 8));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    const ByteView bytes(reinterpret_cast<const std::byte*>(data), size);
    try_request(bytes);
    for (const bool has_disk : {false, true}) {
        const Outcome whole = negotiate(bytes, std::max<std::size_t>(size, 1), has_disk);
        for (const std::size_t step : {1, 5}) {
            const Outcome cut = negotiate(bytes, step, has_disk);
            ASSERT(cut.state == whole.state && cut.said == whole.said);
            // One that is over takes what it has, and that may be less.
            ASSERT(cut.rest == whole.rest || whole.state == Negotiation::State::Over);
        }
    }
    return 0;
}
