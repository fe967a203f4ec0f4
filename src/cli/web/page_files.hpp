// The files of the page, in the program: page_files.cpp is made from web/page/ when the program is
// built.
#pragma once

#include <span>
#include <string_view>

namespace feroce::cli {

struct PageFile {
    std::string_view path;  // Of its URL.
    std::string_view type;
    std::string_view text;
};

std::span<const PageFile> page_files();

}  // namespace feroce::cli
