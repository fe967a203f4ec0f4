#include "cli/capture/capture_file.hpp"

#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "cli/output.hpp"

namespace feroce::cli {
namespace {

// Frames are no longer than this, but for those that a machine put together before sending.
constexpr std::size_t kFrameMax = std::size_t{1} << 17;

std::FILE* open_capture(const std::string& path) {
    std::FILE* file = std::fopen(path.c_str(), "rbe");
    if (file == nullptr) throw UsageError(fmt::format("{}: {}", path, std::strerror(errno)));
    struct stat info {};
    if (::fstat(::fileno(file), &info) == 0 && S_ISDIR(info.st_mode)) {
        std::fclose(file);
        throw UsageError(fmt::format("{} is a folder, not a capture", path));
    }
    return file;
}

const char* link_name(unsigned link) {
    switch (link) {
        case 105:
            return " (802.11)";
        case 197:
            return " (ERF)";
        case 247:
            return " (InfiniBand, not RoCE)";
        default:
            return "";
    }
}

}  // namespace

CaptureFile::CaptureFile(const std::string& path, std::uint64_t bytes_max)
    : path_(path),
      file_(open_capture(path), std::fclose),
      left_(bytes_max),
      reader_([this](ByteSpan out) { return read(out); }) {}

std::size_t CaptureFile::read(ByteSpan out) {
    const auto wanted = static_cast<std::size_t>(std::min<std::uint64_t>(left_, out.size()));
    if (wanted == 0 && !out.empty()) {
        const int next = std::fgetc(file_.get());
        more_ = next != EOF;
        return 0;
    }
    const std::size_t got = std::fread(out.data(), 1, wanted, file_.get());
    if (got == 0 && std::ferror(file_.get()) != 0)
        throw UsageError(fmt::format("{} cannot be read: {}", path_, std::strerror(errno)));
    left_ -= got;
    return got;
}

std::optional<wire::CapturedFrame> CaptureFile::next() {
    while (const auto frame = reader_.next()) {
        if (wire::is_read(frame->link)) {
            ++frames_;
            return frame;
        }
        ++unread_;
        unread_link_ = static_cast<unsigned>(frame->link);
    }
    judge();
    return std::nullopt;
}

void CaptureFile::judge() {
    using Kind = wire::CaptureReader::Kind;
    if (reader_.kind() == Kind::Empty)
        throw UsageError(fmt::format("{} is empty, not a capture", path_));
    if (reader_.kind() == Kind::Gzip)
        throw UsageError(fmt::format("{} is compressed; gunzip makes a capture of it", path_));
    if (!reader_.is_capture())
        throw UsageError(fmt::format("{} is neither a pcapng nor a pcap file", path_));
    if (frames_ == 0 && unread_ > 0)
        throw UsageError(
            fmt::format("{} has frames of link type {}{}; Ethernet, Linux cooked and raw IP "
                        "can be read",
                        path_, unread_link_, link_name(unread_link_)));
}

std::optional<FoundDatagram> datagram_in(const wire::CapturedFrame& frame,
                                         std::vector<std::byte>& room) {
    if (const auto whole = wire::find_datagram(frame))
        return FoundDatagram{*whole, whole->udp_payload.size()};
    const std::size_t size = frame.original_size;
    if (size <= frame.bytes.size() || size > kFrameMax) return std::nullopt;
    room.assign(frame.bytes.begin(), frame.bytes.end());
    room.resize(size);
    wire::CapturedFrame padded = frame;
    padded.bytes = room;
    const auto found = wire::find_datagram(padded);
    if (!found) return std::nullopt;
    const auto at = static_cast<std::size_t>(found->udp_payload.data() - room.data());
    if (at >= frame.bytes.size()) return std::nullopt;
    return FoundDatagram{*found, std::min(frame.bytes.size() - at, found->udp_payload.size())};
}

}  // namespace feroce::cli
