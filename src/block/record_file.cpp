// See record_file.hpp.
#include "block/record_file.hpp"

#include <fcntl.h>
#include <linux/fs.h>
#include <sys/ioctl.h>
#include <sys/statfs.h>
#include <sys/sysmacros.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "block/durable_file.hpp"

namespace feroce::block {

namespace {

constexpr const char* kRecordTitle = "feroce-writer-record 2";
// Named holders without the name that they had asked for, and those that had been overtaken.
// Neither may go on: the names may mean other disks by now.
constexpr const char* kOldRecordTitle = "feroce-writer-record 1";

constexpr std::uint64_t kHashBasis = 0xcbf29ce484222325u;

std::uint64_t mix(std::uint64_t hash, std::uint64_t value) {
    for (int i = 0; i < 8; ++i) hash = (hash ^ (value >> 8 * i & 0xff)) * 0x100000001b3u;
    return hash;
}

std::string emit(const WriterRecord& record, std::uint64_t backing) {
    std::ostringstream out;
    out << kRecordTitle << "\nbacking " << backing << "\nstore " << record.store << "\ngeneration "
        << record.generation << "\nflush_failed " << record.flush_failed << '\n';
    for (const WriterRecord::Holder& holder : record.holders)
        if (holder.client != ClientId{})
            out << "holder " << to_hex(holder.client) << ' ' << holder.name << '\n';
    out << "end\n";
    return out.str();
}

bool parse_client(std::istream& in, ClientId& client) {
    std::string text;
    return in >> text && from_hex(text, client);
}

// False: it is none, or a part of one.
bool parse(std::istream& in, WriterRecord& record, std::uint64_t& backing) {
    std::string line, key;
    if (!std::getline(in, line)) return false;
    const bool old = line == kOldRecordTitle;
    if (!old && line != kRecordTitle) return false;
    std::size_t holders = 0;
    while (in >> key) {
        if (key == "end") return record.store != 0;
        bool fine = true;
        if (key == "backing") {
            fine = static_cast<bool>(in >> backing);
        } else if (key == "store") {
            fine = static_cast<bool>(in >> record.store);
        } else if (key == "generation") {
            fine = static_cast<bool>(in >> record.generation);
        } else if (key == "flush_failed") {
            fine = static_cast<bool>(in >> record.flush_failed);
        } else if (old && (key == "holder" || key == "overtaken")) {
            ClientId unused{};
            fine = parse_client(in, unused);
        } else {
            fine = key == "holder" && holders < record.holders.size() &&
                   parse_client(in, record.holders[holders].client) &&
                   static_cast<bool>(in >> record.holders[holders++].name);
        }
        if (!fine) return false;
    }
    return false;
}

}  // namespace

std::uint64_t device_identity(dev_t number, const std::string& sysfs) {
    std::uint64_t hash = mix(kHashBasis, number);
    const std::string folder =
        sysfs + "/dev/block/" + std::to_string(major(number)) + ":" + std::to_string(minor(number));
    const auto take = [&](const std::string& path) {
        std::ifstream in(path);
        std::string line;
        if (!std::getline(in, line)) return false;
        for (const char c : line) hash = mix(hash, static_cast<unsigned char>(c));
        return true;
    };
    // A partition has no name of its own.
    const bool is_part = take(folder + "/partition");
    if (is_part) take(folder + "/start");
    const std::string whole = is_part ? folder + "/.." : folder;
    for (const char* const name : {"wwid", "device/wwid", "dm/uuid", "md/uuid", "serial",
                                   "device/serial", "loop/backing_file"})
        take(whole + "/" + name);
    return hash;
}

std::uint64_t backing_identity(int fd) {
    struct stat status {};
    if (::fstat(fd, &status) != 0) return 0;
    if (S_ISBLK(status.st_mode)) return device_identity(status.st_rdev);
    std::uint64_t hash = kHashBasis;
    struct statfs system {};
    if (::fstatfs(fd, &system) == 0) {
        std::array<std::uint32_t, 2> id{};
        std::memcpy(id.data(), &system.f_fsid, sizeof id);
        hash = mix(mix(hash, id[0]), id[1]);
    }
    hash = mix(hash, status.st_ino);
    int version = 0;  // The kernel writes an int, whatever the ioctl's number says.
    long room[2] = {};
    if (::ioctl(fd, FS_IOC_GETVERSION, room) == 0) std::memcpy(&version, room, sizeof version);
    hash = mix(hash, static_cast<std::uint32_t>(version));
    struct statx more {};
    if (::statx(fd, "", AT_EMPTY_PATH, STATX_BTIME, &more) == 0 &&
        (more.stx_mask & STATX_BTIME) != 0)
        hash = mix(mix(hash, static_cast<std::uint64_t>(more.stx_btime.tv_sec)),
                   more.stx_btime.tv_nsec);
    return hash;
}

RecordFile::RecordFile(const std::string& backing, bool is_device, const std::string& folder) {
    // The same under every name that leads to it.
    std::error_code ignored;
    const auto full = std::filesystem::canonical(backing, ignored);
    std::filesystem::path at = ignored ? std::filesystem::path(backing) : full;
    if (is_device || !folder.empty()) {
        std::string name = at.string().substr(1);
        std::replace(name.begin(), name.end(), '/', '-');
        at = std::filesystem::path(folder.empty() ? state_folder() : folder) / name;
        std::filesystem::create_directories(at.parent_path(), ignored);
    }
    path_ = std::filesystem::absolute(at).string() + ".feroce";
}

rdma::Result<std::optional<WriterRecord>> RecordFile::load(std::uint64_t backing) const {
    std::ifstream in(path_);
    if (!in) {
        if (errno == ENOENT) return std::optional<WriterRecord>();
        return rdma::Error(errno, path_ + " cannot be read: " + std::strerror(errno));
    }
    WriterRecord record;
    std::uint64_t of = 0;
    if (!parse(in, record, of))
        return rdma::Error(EINVAL, path_ +
                                       " is no writer record of ours; move it away, if no client "
                                       "has the disk open");
    if (of != backing) return std::optional<WriterRecord>();
    return std::optional(record);
}

int RecordFile::save(const WriterRecord& record, std::uint64_t backing) const {
    return save_durably(path_, emit(record, backing));
}

}  // namespace feroce::block
