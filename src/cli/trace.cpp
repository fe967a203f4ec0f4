#include "cli/trace.hpp"

#include <fmt/format.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <exception>
#include <filesystem>
#include <memory>
#include <optional>
#include <system_error>

#include "cli/capture/capture_file.hpp"
#include "cli/perfetto/capture_trace.hpp"
#include "cli/remarks.hpp"
#include "wire/packet.hpp"
#include "wire/pcapng.hpp"
#include "wire/print.hpp"

namespace feroce::cli {
namespace {

namespace fs = std::filesystem;
using File = std::unique_ptr<std::FILE, int (*)(std::FILE*)>;

Json record_of(double seconds, const wire::RoceDatagram& datagram, Remarks& remarks) {
    Json out{{"seconds", seconds},
             {"source", to_string(datagram.address.source)},
             {"destination", to_string(datagram.address.destination)}};
    wire::Packet packet;
    const wire::ParseError error = wire::parse_packet(datagram.udp_payload, packet);
    if (error != wire::ParseError::None) {
        out["packet"] = fmt::format("not a packet: {}", wire::to_string(error));
        return out;
    }
    out["qpn"] = packet.bth.destination.raw;
    out["psn"] = packet.bth.psn.raw();
    out["packet"] = wire::describe(packet);
    out["icrc"] = wire::verify(datagram);
    const std::string remark = remarks.on(datagram, packet);
    if (!remark.empty()) out["remark"] = remark;
    return out;
}

std::string line(const Json& record) {
    std::string out = fmt::format(
        "{:.6f} {} > {} {}", record["seconds"].get<double>(), record["source"].get<std::string>(),
        record["destination"].get<std::string>(), record["packet"].get<std::string>());
    if (!record.value("icrc", true)) out += " (bad ICRC)";
    if (record.contains("remark")) out += "  # " + record["remark"].get<std::string>();
    return out;
}

// The copy with remarks, made at the first frame, whose link type it takes. A file of ours has one
// link type: frames of another are counted and left out.
class Copy {
public:
    explicit Copy(const std::string& path) : path_(path), file_(nullptr, std::fclose) {
        if (path.empty()) return;
        file_.reset(std::fopen(path.c_str(), "wbe"));
        if (file_ == nullptr) throw UsageError(fmt::format("{}: {}", path, std::strerror(errno)));
    }
    void add(const wire::CapturedFrame& frame, const std::string& remark) {
        if (file_ == nullptr) return;
        if (!writer_) {
            writer_.emplace(wire::PcapngWriter::file_sink(file_.get()), frame.link);
            link_ = frame.link;
        }
        if (frame.link == link_)
            writer_->write_frame(frame.since_epoch, frame.bytes, remark, frame.direction);
        else
            ++left_out_;
    }
    void finish() const {
        if (file_ != nullptr && std::ferror(file_.get()) != 0)
            throw UsageError(fmt::format("{} cannot be written", path_));
        if (left_out_ > 0)
            fmt::print(stderr,
                       "feroce: packets of another link type than the first are not in {}: {}\n",
                       path_, left_out_);
    }

private:
    std::string path_;
    File file_;
    wire::LinkType link_{};
    std::uint64_t left_out_ = 0;
    std::optional<wire::PcapngWriter> writer_;
};

// Opening it to write would empty it before it is read.
void refuse_the_capture_itself(const std::string& capture, const std::string& target) {
    std::error_code error;
    if (!target.empty() && fs::equivalent(capture, target, error))
        throw UsageError(fmt::format("{} is the capture itself", target));
}

// A pipe, for one, is empty when it is opened again. A folder is refused where it is opened.
void refuse_what_is_read_once(const std::string& capture) {
    std::error_code error;
    const fs::file_status status = fs::status(capture, error);
    if (fs::exists(status) && !fs::is_regular_file(status) && !fs::is_directory(status))
        throw UsageError(fmt::format(
            "{} is not a regular file, and --perfetto reads it more than once", capture));
}

int trace_to_perfetto(const TraceOptions& trace) {
    refuse_the_capture_itself(trace.what, trace.perfetto);
    refuse_what_is_read_once(trace.what);
    (void)CaptureFile(trace.what).next();  // What is no capture leaves no trace behind.
    TraceFile file(trace.perfetto);
    CaptureTrace made(trace.what, file);
    const bool is_whole = made.write();
    file.finish();
    fmt::print("{}: packets {}, work requests {}, queue pairs {}\n", trace.perfetto, made.packets(),
               made.requests(), made.queue_pairs());
    if (made.left_out() > 0)
        fmt::print(stderr, "feroce: {} has more than {} flows; packets left out: {}\n", trace.what,
                   FlowPairs::kFlowsMax, made.left_out());
    if (is_whole) return 0;
    fmt::print(stderr, "feroce: {} is damaged, the rest is left out\n", trace.what);
    return 1;
}

int trace_file(const TraceOptions& trace, const OutputOptions& options) {
    refuse_the_capture_itself(trace.what, trace.commented);
    CaptureFile file(trace.what);
    std::size_t packets = 0;
    Duration first{};
    Remarks remarks;
    Copy copy(trace.commented);
    Json all = Json::array();
    while (const auto frame = file.next()) {
        const auto datagram = wire::find_datagram(*frame);
        if (!datagram) continue;
        if (packets++ == 0) first = frame->since_epoch;
        const double seconds = std::chrono::duration<double>(frame->since_epoch - first).count();
        Json record = record_of(seconds, *datagram, remarks);
        copy.add(*frame, record.value("remark", ""));
        if (options.json)
            all.push_back(std::move(record));
        else
            fmt::print("{}\n", line(record));
    }
    if (options.json) print_json(all, options);
    copy.finish();
    if (!file.is_damaged()) return 0;
    fmt::print(stderr, "feroce: {} is damaged, the rest is left out\n", trace.what);
    return 1;
}

std::optional<std::uint32_t> number(const std::string& text) {
    std::size_t used = 0;
    try {
        const unsigned long value = std::stoul(text, &used, 0);
        if (used == text.size() && value <= 0xffff'ffff) return static_cast<std::uint32_t>(value);
    } catch (const std::exception&) {
    }
    return std::nullopt;
}

}  // namespace

int trace(const TraceOptions& trace, const OutputOptions& options) {
    std::error_code error;
    const std::optional<std::uint32_t> which = number(trace.what);
    if (which && !fs::exists(trace.what, error)) return trace_live(*which, trace, options);
    return trace.perfetto.empty() ? trace_file(trace, options) : trace_to_perfetto(trace);
}

}  // namespace feroce::cli
