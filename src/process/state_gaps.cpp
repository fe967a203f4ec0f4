// What cannot be known: processes that had no place for a state page. An empty file named after
// each takes no block, so a full /dev/shm has room for it.
#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <functional>
#include <string_view>
#include <utility>

#include "process/state_layout.hpp"
#include "process/state_page.hpp"

namespace feroce::process {
namespace {

constexpr std::string_view kMark = "unkept-";
constexpr std::size_t kMarksMax = 16;
constexpr std::uint64_t kPageBytes = 64 * 1024;  // What a page takes before there is much to tell.

// The youngest first. Removes all but the last few.
std::vector<std::uint32_t> look_at_marks(const std::string& directory) {
    std::vector<std::pair<std::int64_t, std::string>> marks;
    DIR* list = ::opendir(directory.c_str());
    if (list == nullptr) return {};
    while (const dirent* entry = ::readdir(list)) {
        const std::string_view name = entry->d_name;
        struct stat info {};
        if (name.substr(0, kMark.size()) != kMark ||
            ::stat((directory + "/" + entry->d_name).c_str(), &info) != 0)
            continue;
        marks.emplace_back(info.st_mtim.tv_sec * 1'000'000'000LL + info.st_mtim.tv_nsec, name);
    }
    ::closedir(list);
    std::sort(marks.begin(), marks.end(), std::greater<>());
    std::vector<std::uint32_t> pids;
    const std::string folder = directory + "/";
    for (std::size_t i = 0; i < marks.size(); ++i) {
        const std::string& name = marks[i].second;
        if (i >= kMarksMax)
            ::unlink((folder + name).c_str());
        else
            pids.push_back(
                static_cast<std::uint32_t>(std::strtoul(name.c_str() + kMark.size(), nullptr, 10)));
    }
    return pids;
}

}  // namespace

std::optional<std::string> page_trouble(std::uint32_t user) {
    struct statvfs space {};
    if (::statvfs("/dev/shm", &space) != 0) return "/dev/shm is not there";
    if ((space.f_flag & ST_RDONLY) != 0) return "/dev/shm is read-only";
    const Result<std::string> directory = existing_directory(user);
    if (!directory && directory.error().code != ENOENT) return directory.error().why;
    if (!directory && ::access("/dev/shm", W_OK) != 0) return "/dev/shm cannot be written to";
    const bool limited = space.f_blocks != 0;
    if (limited && std::uint64_t{space.f_bavail} * space.f_frsize < kPageBytes)
        return "/dev/shm is full";
    return std::nullopt;
}

void mark_unkept(std::uint32_t user) {
    const Result<std::string> directory = user_directory(user);
    if (!directory) return;
    const std::string path = *directory + "/" + std::string(kMark) + std::to_string(::getpid());
    const int fd =
        ::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd >= 0) ::close(fd);
    (void)look_at_marks(*directory);
}

void unmark(const std::string& directory) {
    ::unlink((directory + "/" + std::string(kMark) + std::to_string(::getpid())).c_str());
}

std::vector<std::uint32_t> unkept_processes(std::uint32_t user) {
    const Result<std::string> directory = existing_directory(user);
    return directory ? look_at_marks(*directory) : std::vector<std::uint32_t>();
}

}  // namespace feroce::process
