// The calls of libc that open or resolve a path, each with the path rewritten. The variants with an
// underscore are what programs built with _FORTIFY_SOURCE call.
#include <dirent.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdlib.h>
#include <unistd.h>

#include <cstdio>

#include "base/environment.hpp"
#include "preload/next.hpp"
#include "preload/rewrite.hpp"

namespace feroce::preload {
namespace {

Next<int(const char*, int, mode_t)> next_open("open");
Next<int(const char*, int, mode_t)> next_open64("open64");
Next<int(int, const char*, int, mode_t)> next_openat("openat");
Next<int(int, const char*, int, mode_t)> next_openat64("openat64");
Next<FILE*(const char*, const char*)> next_fopen("fopen");
Next<FILE*(const char*, const char*)> next_fopen64("fopen64");
Next<DIR*(const char*)> next_opendir("opendir");
Next<int(const char*)> next_chdir("chdir");
Next<char*(const char*, char*)> next_realpath("realpath");
Next<ssize_t(const char*, char*, size_t)> next_readlink("readlink");
Next<ssize_t(int, const char*, char*, size_t)> next_readlinkat("readlinkat");

// Only these flags come with a mode; without them the argument must not be read.
mode_t mode_of(int flags, va_list arguments) {
    const bool creates = (flags & O_CREAT) != 0 || (flags & O_TMPFILE) == O_TMPFILE;
    return creates ? static_cast<mode_t>(va_arg(arguments, int)) : 0;
}

__attribute__((constructor)) void prepare() {
    set_root(feroce::environment("FEROCE_SYSFS_ROOT"));
    next_open.get();
    next_open64.get();
    next_openat.get();
    next_openat64.get();
    next_fopen.get();
    next_fopen64.get();
    next_opendir.get();
    next_chdir.get();
    next_realpath.get();
    next_readlink.get();
    next_readlinkat.get();
    look_up_stat_functions();
}

}  // namespace
}  // namespace feroce::preload

using namespace feroce::preload;

#pragma GCC visibility push(default)
extern "C" {

// Called by our libibverbs, which finds it by name.
void feroce_preload_gpu_region() {
    show_gpu_module();
}

int open(const char* path, int flags, ...) {
    va_list arguments;
    va_start(arguments, flags);
    const mode_t mode = mode_of(flags, arguments);
    va_end(arguments);
    return next_open(Rewritten(path).path(), flags, mode);
}
int open64(const char* path, int flags, ...) {
    va_list arguments;
    va_start(arguments, flags);
    const mode_t mode = mode_of(flags, arguments);
    va_end(arguments);
    return next_open64(Rewritten(path).path(), flags, mode);
}
int openat(int directory, const char* path, int flags, ...) {
    va_list arguments;
    va_start(arguments, flags);
    const mode_t mode = mode_of(flags, arguments);
    va_end(arguments);
    return next_openat(directory, Rewritten(path).path(), flags, mode);
}
int openat64(int directory, const char* path, int flags, ...) {
    va_list arguments;
    va_start(arguments, flags);
    const mode_t mode = mode_of(flags, arguments);
    va_end(arguments);
    return next_openat64(directory, Rewritten(path).path(), flags, mode);
}
int __open_2(const char* path, int flags) {
    return next_open(Rewritten(path).path(), flags, 0u);
}
int __open64_2(const char* path, int flags) {
    return next_open64(Rewritten(path).path(), flags, 0u);
}
int __openat_2(int directory, const char* path, int flags) {
    return next_openat(directory, Rewritten(path).path(), flags, 0u);
}
int __openat64_2(int directory, const char* path, int flags) {
    return next_openat64(directory, Rewritten(path).path(), flags, 0u);
}

FILE* fopen(const char* path, const char* mode) {
    return next_fopen(Rewritten(path).path(), mode);
}
FILE* fopen64(const char* path, const char* mode) {
    return next_fopen64(Rewritten(path).path(), mode);
}
DIR* opendir(const char* path) {
    return next_opendir(Rewritten(path).path());
}

// Relative paths then lead into the tree by themselves.
int chdir(const char* path) noexcept {
    return next_chdir(Rewritten(path).path());
}

char* realpath(const char* path, char* resolved) noexcept {
    return next_realpath(Rewritten(path).path(), resolved);
}
char* __realpath_chk(const char* path, char* resolved, size_t size) {
    if (resolved != nullptr && size < kPathMax) abort();  // As libc does.
    return next_realpath(Rewritten(path).path(), resolved);
}
char* canonicalize_file_name(const char* path) noexcept {
    return next_realpath(Rewritten(path).path(), static_cast<char*>(nullptr));
}
ssize_t readlink(const char* path, char* out, size_t size) noexcept {
    return next_readlink(Rewritten(path).path(), out, size);
}
ssize_t __readlink_chk(const char* path, char* out, size_t size, size_t room) {
    if (size > room) abort();
    return next_readlink(Rewritten(path).path(), out, size);
}
ssize_t readlinkat(int directory, const char* path, char* out, size_t size) noexcept {
    return next_readlinkat(directory, Rewritten(path).path(), out, size);
}

}  // extern "C"
#pragma GCC visibility pop
