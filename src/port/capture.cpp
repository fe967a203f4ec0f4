#include "port/capture.hpp"

#include <unistd.h>

#include <ctime>

namespace feroce::port {

std::unique_ptr<Capture> Capture::open(std::string path) {
    if (const std::size_t at = path.find("%p"); at != std::string::npos)
        path.replace(at, 2, std::to_string(::getpid()));
    std::FILE* file = std::fopen(path.c_str(), "wbe");
    return file == nullptr ? nullptr : std::unique_ptr<Capture>(new Capture(file));
}

Capture::Capture(std::FILE* file)
    : file_(file), writer_(wire::PcapngWriter::file_sink(file), wire::LinkType::RawIp) {}

Capture::~Capture() {
    std::fclose(file_);
}

void Capture::write(const wire::RoceDatagram& datagram) {
    timespec now;
    ::clock_gettime(CLOCK_REALTIME, &now);
    const std::lock_guard lock(mutex_);
    writer_.write_datagram(std::chrono::seconds(now.tv_sec) + std::chrono::nanoseconds(now.tv_nsec),
                           datagram);
}

}  // namespace feroce::port
