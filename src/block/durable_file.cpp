// See durable_file.hpp.
#include "block/durable_file.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <filesystem>

namespace feroce::block {

namespace {

int write_all(int fd, const std::string& text) {
    std::size_t at = 0;
    while (at < text.size()) {
        const ssize_t wrote = ::write(fd, text.data() + at, text.size() - at);
        if (wrote < 0 && errno == EINTR) continue;
        if (wrote <= 0) return wrote < 0 ? errno : EIO;
        at += static_cast<std::size_t>(wrote);
    }
    return ::fsync(fd) == 0 ? 0 : errno;
}

int sync_folder(const std::string& of) {
    const std::string folder = std::filesystem::path(of).parent_path();
    const int fd = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) return errno;
    const int error = ::fsync(fd) == 0 ? 0 : errno;
    ::close(fd);
    return error;
}

}  // namespace

std::string state_folder() {
    // The first of several.
    const char* const given = ::secure_getenv("STATE_DIRECTORY");
    if (given == nullptr || *given == 0) return "/var/lib/feroce";
    const std::string all = given;
    return all.substr(0, all.find(':'));
}

int save_durably(const std::string& path, const std::string& text) {
    const std::string fresh = path + ".new";
    // What lies there may be another name of somebody's file.
    ::unlink(fresh.c_str());
    const int fd =
        ::open(fresh.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0) return errno;
    int error = write_all(fd, text);
    ::close(fd);
    if (error == 0 && ::rename(fresh.c_str(), path.c_str()) != 0) error = errno;
    if (error == 0) return sync_folder(path);
    ::unlink(fresh.c_str());  // What it takes may be all the room that there is.
    return error;
}

std::string to_hex(std::span<const std::byte> bytes) {
    std::string out;
    std::array<char, 3> two{};
    for (const std::byte byte : bytes) {
        std::snprintf(two.data(), two.size(), "%02x", static_cast<unsigned>(byte));
        out += two.data();
    }
    return out;
}

bool from_hex(const std::string& text, std::span<std::byte> out) {
    if (text.size() != 2 * out.size()) return false;
    for (std::size_t i = 0; i < out.size(); ++i) {
        unsigned value = 0;
        const char* const at = text.data() + 2 * i;
        const auto read = std::from_chars(at, at + 2, value, 16);
        if (read.ec != std::errc() || read.ptr != at + 2) return false;
        out[i] = static_cast<std::byte>(value);
    }
    return true;
}

}  // namespace feroce::block
