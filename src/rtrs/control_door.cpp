// See control_door.hpp.
#include "rtrs/control_door.hpp"

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <utility>

#include "rtrs/control_names.hpp"

namespace feroce::rtrs {

namespace {

constexpr unsigned kRounds = 1024;  // A round is a microsecond or less.
constexpr std::size_t kMaxRequest = 2048;

// Bound at the path, or -1.
int bound_socket(const std::string& path) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    if (path.size() >= sizeof address.sun_path) return -1;
    std::memcpy(address.sun_path, path.c_str(), path.size() + 1);
    const int fd = ::socket(AF_UNIX, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0) return -1;
    ::unlink(path.c_str());  // Of a process that had our number before and was killed.
    if (::bind(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0) return fd;
    ::close(fd);
    return -1;
}

ControlDoor::Words split(std::string_view request) {
    ControlDoor::Words words;
    for (std::size_t at = 0; at < request.size();) {
        const std::size_t end = std::min(request.find('\0', at), request.size());
        words.push_back(request.substr(at, end - at));
        at = end + 1;
    }
    return words;
}

}  // namespace

std::unique_ptr<ControlDoor> ControlDoor::open(rdma::Loop& loop, Answer answer) {
    static std::atomic<unsigned> doors = 0;  // Only for names that differ: no order needed.
    const std::string directory = loop.runtime().user_directory();
    if (directory.empty()) return nullptr;
    const unsigned number = doors.fetch_add(1, std::memory_order_relaxed);
    std::string path = directory + "/" + std::string(kDoorPrefix) + std::to_string(::getpid()) +
                       "-" + std::to_string(number);
    const int fd = bound_socket(path);
    if (fd < 0) return nullptr;
    return std::unique_ptr<ControlDoor>(
        new ControlDoor(loop, std::move(answer), std::move(path), fd));
}

ControlDoor::ControlDoor(rdma::Loop& loop, Answer answer, std::string path, int fd)
    : loop_(loop), answer_(std::move(answer)), path_(std::move(path)), fd_(fd) {
    loop_.attach(*this);
}

ControlDoor::~ControlDoor() {
    loop_.detach(*this);
    ::close(fd_);
    ::unlink(path_.c_str());
}

bool ControlDoor::poll() {
    if (!look_ && ++rounds_ % kRounds != 0) return false;
    look_ = false;
    return serve_one();
}

bool ControlDoor::serve_one() {
    std::array<char, kMaxRequest> request;
    sockaddr_un from{};
    socklen_t from_size = sizeof from;
    const ssize_t size = ::recvfrom(fd_, request.data(), request.size(), 0,
                                    reinterpret_cast<sockaddr*>(&from), &from_size);
    if (size < 0) return false;
    look_ = true;  // There may be more.
    const std::string reply =
        answer_(split(std::string_view(request.data(), static_cast<std::size_t>(size))));
    // A caller that does not wait for its answer does not get it.
    (void)::sendto(fd_, reply.data(), reply.size(), MSG_DONTWAIT | MSG_NOSIGNAL,
                   reinterpret_cast<const sockaddr*>(&from), from_size);
    return true;
}

}  // namespace feroce::rtrs
