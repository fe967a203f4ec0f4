// RecordFile: the writer record of a file or a block device, in a small text file. A crash leaves
// the old one or the new one.
#pragma once

#include <sys/stat.h>

#include <cstdint>
#include <optional>
#include <string>

#include "feroce/block/types.hpp"
#include "feroce/error.hpp"

namespace feroce::block {

// What tells a backing store from any other, also from one that took its name or its inode: the
// file system, the inode with its generation and the time of its birth; of a device its number and
// what it says of itself.
std::uint64_t backing_identity(int fd);
// Numbers of devices are given out again at every boot, perhaps in another order: what names the
// device itself (WWID, UUID, serial number, the file of a loop device) is a part of its identity.
std::uint64_t device_identity(dev_t number, const std::string& sysfs = "/sys");

class RecordFile {
public:
    // `folder`: where; empty: beside the file, or in the state folder for a device.
    RecordFile(const std::string& backing, bool is_device, const std::string& folder);

    const std::string& path() const { return path_; }
    // Nothing if there is none, or if it is that of another backing store.
    rdma::Result<std::optional<WriterRecord>> load(std::uint64_t backing) const;
    // Durable when it returns 0; else an errno. Any thread, one at a time.
    int save(const WriterRecord& record, std::uint64_t backing) const;

private:
    std::string path_;
};

}  // namespace feroce::block
