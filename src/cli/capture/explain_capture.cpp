#include "cli/capture/explain_capture.hpp"

#include <fmt/format.h>

#include <chrono>

#include "cli/capture/capture_file.hpp"
#include "cli/capture/story.hpp"
#include "cli/explain.hpp"

namespace feroce::cli {
namespace {

std::string named_end(const Gid& address, std::uint32_t qpn) {
    return qpn == 0 ? to_string(address)
                    : fmt::format("QP 0x{:06x} at {}", qpn, to_string(address));
}

const char* name_of(CaptureFinding::Kind kind) {
    switch (kind) {
        case CaptureFinding::Kind::Failure:
            return "failure";
        case CaptureFinding::Kind::Doubt:
            return "doubt";
        case CaptureFinding::Kind::Notice:
            break;
    }
    return "notice";
}

Json record_of(const CaptureFinding& finding) {
    Json because = Json::array();
    if (!finding.because.empty())
        because.push_back({{"who", named_end(finding.destination, finding.peer_qpn)},
                           {"reason", finding.because}});
    return {{"seconds", std::chrono::duration<double>(finding.time).count()},
            {"who", named_end(finding.source, finding.qpn)},
            {"source", to_string(finding.source)},
            {"destination", to_string(finding.destination)},
            {"lqpn", finding.qpn},
            {"rqpn", finding.peer_qpn},
            {"psn", finding.psn},
            {"kind", name_of(finding.kind)},
            {"reason", finding.sentence},
            {"because", because}};
}

std::string grouped(std::uint64_t value) {
    std::string out = std::to_string(value);
    for (std::size_t at = out.size(); at > 3;) out.insert(at -= 3, ",");
    return out;
}

std::string counted(std::uint64_t value, const char* one) {
    return fmt::format("{} {}{}", grouped(value), one, value == 1 ? "" : "s");
}

std::string sum_of(const StoryCounts& c, std::uint64_t failures, std::uint64_t doubts) {
    std::string out = failures > 0 ? counted(failures, "failure") + " seen: "
                      : doubts > 0 ? "no failure is certain: "
                                   : "no failure seen: ";
    out += counted(c.connections, "connection");
    if (c.half > 0)
        out += fmt::format(", {} whose other end is not known", counted(c.half, "queue pair"));
    if (c.datagram_qps > 0)
        out += fmt::format(", {} of datagrams", counted(c.datagram_qps, "queue pair"));
    return out + ", " + counted(c.packets, "packet");
}

// Why more may have happened than is told.
std::vector<std::string> limits(const StoryCounts& c, const CaptureFile& file) {
    std::vector<std::string> out;
    if (file.is_damaged()) out.emplace_back("the file is damaged, the rest of it is left out");
    if (c.packets == 0) out.emplace_back("there is no RoCEv2 packet (UDP port 4791) in it");
    if (file.unread_frames() > 0)
        out.push_back(counted(file.unread_frames(), "frame") +
                      " of another link type are left out");
    if (c.cut > 0)
        out.push_back(
            fmt::format("of {} the capture has only the beginning, so their ICRC is not "
                        "checked",
                        counted(c.cut, "packet")));
    if (c.unsplit > 0)
        out.push_back(
            fmt::format("{} hold several packets, put together by hardware, which could "
                        "not be taken apart",
                        counted(c.unsplit, "datagram")));
    if (c.missing > 0)
        out.push_back(counted(c.missing, "packet") + " are not in the capture, by the PSNs");
    if (c.malformed > 0)
        out.push_back(counted(c.malformed, "datagram") + " to port 4791 make no sense as packets");
    if (c.unanswered > 0)
        out.push_back(
            fmt::format("of {} no answer is in the capture: it may show one direction "
                        "only, or end too soon",
                        counted(c.unanswered, "queue pair")));
    if (c.forgotten > 0)
        out.push_back(
            fmt::format("there was no room for {} at once: they were judged when others "
                        "needed the room",
                        counted(c.forgotten, "queue pair")));
    if (c.findings_left_out > 0)
        out.push_back(counted(c.findings_left_out, "finding") + " are left out");
    return out;
}

bool concerns(std::optional<std::uint32_t> which, const CaptureFinding& finding) {
    return !which || *which == finding.qpn || *which == finding.peer_qpn;
}

}  // namespace

int explain_capture(const std::string& path, std::optional<std::uint32_t> which,
                    const OutputOptions& options) {
    CaptureFile file(path);
    CaptureStory story;
    std::vector<std::byte> room;
    while (const auto frame = file.next()) {
        story.on_time(frame->since_epoch);
        if (const auto found = datagram_in(*frame, room))
            story.on_datagram(frame->since_epoch, found->datagram, found->captured);
    }
    Json records = Json::array();
    std::uint64_t failures = 0, doubts = 0;
    for (const CaptureFinding& finding : story.finish()) {
        if (!concerns(which, finding)) continue;
        if (finding.kind == CaptureFinding::Kind::Failure) ++failures;
        if (finding.kind == CaptureFinding::Kind::Doubt) ++doubts;
        records.push_back(record_of(finding));
    }
    const std::vector<std::string> unknown = limits(story.counts(), file);
    if (options.json)
        print_json(records, options);
    else
        print_explanations(records);
    if (!options.json) fmt::print("{}\n", sum_of(story.counts(), failures, doubts));
    for (const std::string& sentence : unknown)
        fmt::print(stderr, "feroce: not everything can be known: {}\n", sentence);
    if (failures + doubts > 0) return 0;
    const bool unsure = file.is_damaged() || story.counts().packets == 0;
    return unsure ? 2 : 1;
}

}  // namespace feroce::cli
