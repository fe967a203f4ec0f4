#include "verbs/lint_symbols.hpp"

#include <cxxabi.h>
#include <elf.h>
#include <fcntl.h>
#include <link.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <memory>
#include <span>

namespace feroce::verbs {
namespace {

// A file in memory. Offsets in it are believed only within it.
class MappedFile {
public:
    explicit MappedFile(const char* path) {
        const int fd = ::open(path, O_RDONLY | O_CLOEXEC);
        if (fd < 0) return;
        struct stat status {};
        if (::fstat(fd, &status) == 0 && status.st_size > 0) {
            const auto size = static_cast<std::size_t>(status.st_size);
            void* at = ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, fd, 0);
            if (at != MAP_FAILED) bytes_ = {static_cast<const char*>(at), size};
        }
        ::close(fd);
    }
    ~MappedFile() {
        if (!bytes_.empty()) ::munmap(const_cast<char*>(bytes_.data()), bytes_.size());
    }
    MappedFile(const MappedFile&) = delete;
    MappedFile& operator=(const MappedFile&) = delete;

    template <class T>
    std::span<const T> array(std::uint64_t offset, std::uint64_t count) const {
        const bool fits = offset % alignof(T) == 0 && offset <= bytes_.size() &&
                          count <= (bytes_.size() - offset) / sizeof(T);
        if (!fits) return {};
        return {reinterpret_cast<const T*>(bytes_.data() + offset),
                static_cast<std::size_t>(count)};
    }

private:
    std::span<const char> bytes_;
};

// Where the first byte of the file would lie, in the numbers that its symbols have.
std::uint64_t load_address(std::span<const ElfW(Phdr)> segments) {
    for (const auto& segment : segments)
        if (segment.p_type == PT_LOAD) return segment.p_vaddr - segment.p_offset;
    return 0;
}

const char* find_symbol(std::span<const ElfW(Sym)> symbols, std::span<const char> names,
                        std::uint64_t address) {
    for (const auto& symbol : symbols) {
        if ((symbol.st_info & 0xf) != STT_FUNC || address < symbol.st_value) continue;
        if (address - symbol.st_value >= symbol.st_size || symbol.st_name >= names.size()) continue;
        const char* name = names.data() + symbol.st_name;
        if (std::memchr(name, '\0', names.size() - symbol.st_name) != nullptr) return name;
    }
    return nullptr;
}

}  // namespace

std::string readable(const char* symbol) {
    int status = 0;
    const std::unique_ptr<char, decltype(&std::free)> name(
        abi::__cxa_demangle(symbol, nullptr, nullptr, &status), &std::free);
    return name != nullptr ? name.get() : symbol;
}

std::string function_at(const char* path, std::uint64_t offset) {
    const MappedFile file(path);
    const auto header = file.array<ElfW(Ehdr)>(0, 1);
    if (header.empty() || std::memcmp(header[0].e_ident, ELFMAG, SELFMAG) != 0) return {};
    const auto segments = file.array<ElfW(Phdr)>(header[0].e_phoff, header[0].e_phnum);
    const auto sections = file.array<ElfW(Shdr)>(header[0].e_shoff, header[0].e_shnum);
    const std::uint64_t address = load_address(segments) + offset;
    for (const auto& section : sections) {
        if (section.sh_type != SHT_SYMTAB || section.sh_link >= sections.size()) continue;
        const auto& strings = sections[section.sh_link];
        const char* found = find_symbol(
            file.array<ElfW(Sym)>(section.sh_offset, section.sh_size / sizeof(ElfW(Sym))),
            file.array<char>(strings.sh_offset, strings.sh_size), address);
        if (found != nullptr) return readable(found);
    }
    return {};
}

}  // namespace feroce::verbs
