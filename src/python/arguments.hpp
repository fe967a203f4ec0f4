// What C callers hand over, as values of ours. Nothing is kept that points into their memory.
#pragma once

#include <cerrno>
#include <cstring>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

#include "feroce/rtrs/options.hpp"
#include "python/call.hpp"
#include "python/feroce_python.h"

namespace feroce::python {

inline Bytes copy_of(feroce_bytes bytes) {
    if (bytes.size > Bytes().max_size()) throw std::length_error("bytes of a call");
    const auto* begin = static_cast<const std::byte*>(bytes.data);
    return begin == nullptr ? Bytes() : Bytes(begin, begin + bytes.size);
}

inline std::string text_of(const char* text) {
    return text == nullptr ? std::string() : std::string(text);
}

// Lines of "ADDRESS" or "ADDRESS SOURCE".
inline std::vector<rtrs::PathAddress> paths_of(const char* lines) {
    std::vector<rtrs::PathAddress> out;
    std::istringstream text(text_of(lines));
    for (std::string line; std::getline(text, line);) {
        std::istringstream words(line);
        rtrs::PathAddress path;
        words >> path.destination >> path.source;
        if (!path.destination.empty()) out.push_back(path);
    }
    return out;
}

inline rtrs::SessionOptions options_of(const feroce_session_options& given) {
    rtrs::SessionOptions out;
    out.port = given.port;
    out.connections = given.connections;
    out.policy = static_cast<rtrs::PathPolicy>(given.policy);
    out.connect_timeout = Duration(given.connect_timeout);
    out.queue_if_no_path = Duration(given.queue_if_no_path);
    return out;
}

// A structure of numbers as the data of an outcome.
template <class T>
Bytes bytes_of(const T& value) {
    Bytes out(sizeof value);
    std::memcpy(out.data(), &value, sizeof value);
    return out;
}

}  // namespace feroce::python
