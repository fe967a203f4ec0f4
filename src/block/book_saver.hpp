// BookSaver: makes durable what a desk's ClientBook says. A BookKeeper does it by a file.
#pragma once

#include "block/exported_disk.hpp"

namespace feroce::block {

class BookSaver {
public:
    virtual ~BookSaver() = default;  // When nothing is being saved.
    virtual bool saving() const = 0;
    // Tells the waiter when what the book says now is durable, with 0, or an errno; perhaps at
    // once.
    virtual void settle(ExportedDisk::Waiter& waiter) = 0;
    virtual void settle() = 0;
};

}  // namespace feroce::block
