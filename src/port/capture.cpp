#include "port/capture.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <ctime>

#include "base/uncancelled.hpp"
#include "port/fd.hpp"

namespace feroce::port {

namespace {

enum class Opened : std::uint8_t { Ours, Taken, Failed };

// Empty and ours alone, unless another process writes to it. What is no file is everybody's.
Opened open_file(const std::string& path, Fd& out) {
    out = Fd(::open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0666));
    struct stat info {};
    if (!out.valid() || ::fstat(out.get(), &info) != 0) return Opened::Failed;
    if (!S_ISREG(info.st_mode)) return Opened::Ours;
    // Where the file system knows no locks the last one to open it wins.
    if (::flock(out.get(), LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) return Opened::Taken;
    return ::ftruncate(out.get(), 0) == 0 ? Opened::Ours : Opened::Failed;
}

}  // namespace

std::unique_ptr<Capture> Capture::open(std::string path) {
    const std::string process = std::to_string(::getpid());
    if (const std::size_t at = path.find("%p"); at != std::string::npos)
        path.replace(at, 2, process);
    Fd fd;
    Opened opened = open_file(path, fd);
    if (opened == Opened::Taken) opened = open_file(path + "." + process, fd);
    if (opened != Opened::Ours) return nullptr;
    std::FILE* file = ::fdopen(fd.get(), "wb");
    if (file == nullptr) return nullptr;
    fd.release();
    return std::unique_ptr<Capture>(new Capture(file));
}

void Capture::abandon() {
    // Not closed: what is in the stream's buffer must not go to the next file with that number.
    const Fd nothing(::open("/dev/null", O_WRONLY | O_CLOEXEC));
    if (nothing.valid()) ::dup3(nothing.get(), ::fileno(file_), O_CLOEXEC);
}

Capture::Capture(std::FILE* file)
    : file_(file), writer_(wire::PcapngWriter::file_sink(file), wire::LinkType::RawIp) {}

Capture::~Capture() {
    std::fclose(file_);
}

void Capture::write(const wire::RoceDatagram& datagram) {
    const Uncancelled call;  // Programs' threads come here with a shard's lock.
    timespec now;
    ::clock_gettime(CLOCK_REALTIME, &now);
    const std::lock_guard lock(mutex_);
    writer_.write_datagram(std::chrono::seconds(now.tv_sec) + std::chrono::nanoseconds(now.tv_nsec),
                           datagram);
}

}  // namespace feroce::port
