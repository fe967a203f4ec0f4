// Small text files that outlive servers: written as a whole, so that a crash leaves the old or the
// new one.
#pragma once

#include <cstddef>
#include <span>
#include <string>

namespace feroce::block {

// As systemd's StateDirectory= gives it, or /var/lib/feroce.
std::string state_folder();
// Durable when it returns 0; else an errno.
int save_durably(const std::string& path, const std::string& text);

std::string to_hex(std::span<const std::byte> bytes);
// False if it is no text of so many bytes.
bool from_hex(const std::string& text, std::span<std::byte> out);

}  // namespace feroce::block
