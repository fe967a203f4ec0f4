// Capture: FEROCE_PCAP=FILE writes what the process sends and receives to a pcapng file. "%p" in
// the name becomes the process id. A file that another process writes to, as a forked child finds
// its parent's, is left alone: the process id is appended to the name. Received packets show the
// IPv4 id that the sender most likely used, because a UDP socket does not tell. Any thread.
#pragma once

#include <cstdint>
#include <cstdio>
#include <memory>
#include <mutex>
#include <string>

#include "wire/pcapng.hpp"

namespace feroce::port {

class Capture {
public:
    static std::unique_ptr<Capture> open(std::string path);  // Null if the file cannot be made.
    ~Capture();

    void abandon();  // In a forked child: lets go of the parent's file.

    void write(const wire::RoceDatagram& datagram);

private:
    explicit Capture(std::FILE* file);

    std::FILE* file_;
    std::mutex mutex_;
    wire::PcapngWriter writer_;
};

}  // namespace feroce::port
