// A capture on disk, frame by frame. What cannot be read is refused with one sentence: a folder, an
// empty file, one that is no capture, one whose frames have a link header that is not known.
#pragma once

#include <cstdint>
#include <cstdio>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "wire/capture_reader.hpp"

namespace feroce::cli {

class CaptureFile {
public:
    // Reads no more than `bytes_max`. Throws UsageError, as next() does.
    explicit CaptureFile(const std::string& path,
                         std::uint64_t bytes_max = std::numeric_limits<std::uint64_t>::max());

    CaptureFile(const CaptureFile&) = delete;  // The reader calls it back.
    CaptureFile& operator=(const CaptureFile&) = delete;

    std::optional<wire::CapturedFrame> next();

    // All three after the last frame.
    bool is_cut() const { return more_; }  // There is more than `bytes_max`.
    bool is_damaged() const { return !more_ && reader_.damaged(); }
    std::uint64_t unread_frames() const { return unread_; }  // Of link types that are not known.

private:
    using File = std::unique_ptr<std::FILE, int (*)(std::FILE*)>;

    std::size_t read(ByteSpan out);
    void judge();  // When there is no frame any more.

    std::string path_;
    File file_;
    std::uint64_t left_;
    bool more_ = false;
    std::uint64_t frames_ = 0;
    std::uint64_t unread_ = 0;
    unsigned unread_link_ = 0;
    wire::CaptureReader reader_;
};

// The datagram in a frame. Of a frame that the capture cut, what is missing is zeros in `room`, and
// `captured` says how many bytes of the UDP payload are real.
struct FoundDatagram {
    wire::RoceDatagram datagram;
    std::size_t captured = 0;
    bool is_cut() const { return captured < datagram.udp_payload.size(); }
};
std::optional<FoundDatagram> datagram_in(const wire::CapturedFrame& frame,
                                         std::vector<std::byte>& room);

}  // namespace feroce::cli
