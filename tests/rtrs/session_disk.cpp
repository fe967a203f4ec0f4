// A disk that sessions read and write, kept in a file that outlives the program however it ends:
//     session_disk PORT FILE
// A message is the offset, eight bytes.
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <span>

#include "feroce/rtrs/server.hpp"

using namespace feroce;

namespace {

constexpr std::size_t kDiskSize = 16 << 20;

std::span<std::byte> map_file(const char* path) {
    const int fd = ::open(path, O_RDWR | O_CREAT, 0600);
    if (fd < 0 || ::ftruncate(fd, kDiskSize) != 0) std::abort();
    void* const at = ::mmap(nullptr, kDiskSize, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (at == MAP_FAILED) std::abort();
    return {static_cast<std::byte*>(at), kDiskSize};
}

}  // namespace

int main(int, char** argv) {
    const std::span<std::byte> disk = map_file(argv[2]);
    rdma::Loop loop;
    rtrs::ServerOptions options;
    options.port = static_cast<std::uint16_t>(std::atoi(argv[1]));
    options.queue_depth = 32;
    options.chunk_size = 1 << 20;
    rtrs::Server server = rtrs::Server::open(loop, options, [disk](rtrs::ServerRequest& request) {
                              std::uint64_t offset = 0;
                              if (request.message().size() != sizeof offset)
                                  return request.respond(EINVAL);
                              std::memcpy(&offset, request.message().data(), sizeof offset);
                              const std::size_t size = request.data().size();
                              if (offset > disk.size() || disk.size() - offset < size)
                                  return request.respond(ENOSPC);
                              std::byte* const at = disk.data() + offset;
                              if (request.direction() == rtrs::Direction::Write)
                                  std::memcpy(at, request.data().data(), size);
                              else
                                  std::memcpy(request.data().data(), at, size);
                              request.respond();
                          }).value();
    for (;;) loop.poll_or_wait();
}
