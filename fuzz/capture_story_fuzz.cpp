// A capture file of any bytes, read as `feroce explain --pcap` reads it: in pieces, whole and cut
// frames, with a table that is soon full. Nothing in it may crash, and every sentence is one line.
#include <algorithm>
#include <vector>

#include "base/assert.hpp"
#include "cli/capture/capture_file.hpp"
#include "cli/capture/story.hpp"

namespace {

using namespace feroce;

void check(const cli::CaptureFinding& finding) {
    ASSERT(!finding.sentence.empty());
    ASSERT(finding.sentence.find('\n') == std::string::npos);
    ASSERT(finding.because.find('\n') == std::string::npos);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    ByteView rest = std::as_bytes(std::span(data, size));
    wire::CaptureReader reader([&rest](ByteSpan out) {
        const std::size_t count = std::min<std::size_t>({out.size(), rest.size(), 100});
        std::copy_n(rest.begin(), count, out.begin());
        rest = rest.subspan(count);
        return count;
    });
    cli::CaptureStory story(8);
    std::vector<std::byte> room;
    while (const auto frame = reader.next()) {
        story.on_time(frame->since_epoch);
        if (const auto found = cli::datagram_in(*frame, room))
            story.on_datagram(frame->since_epoch, found->datagram, found->captured);
    }
    const std::vector<cli::CaptureFinding> findings = story.finish();
    ASSERT(findings.size() <= cli::CaptureStory::kFindingsMax);
    std::for_each(findings.begin(), findings.end(), check);
    return 0;
}
