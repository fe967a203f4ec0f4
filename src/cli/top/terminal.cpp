// Functions and not macros: they are found by name, in the library that is loaded.
#define NCURSES_NOMACROS 1
#include "cli/top/terminal.hpp"

#include <curses.h>
#include <dlfcn.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <type_traits>

namespace feroce::cli {

struct Terminal::Library {
    decltype(&::newterm) newterm = nullptr;
    decltype(&::endwin) endwin = nullptr;
    decltype(&::delscreen) delscreen = nullptr;
    decltype(&::cbreak) cbreak = nullptr;
    decltype(&::noecho) noecho = nullptr;
    decltype(&::keypad) keypad = nullptr;
    decltype(&::curs_set) curs_set = nullptr;
    decltype(&::set_escdelay) set_escdelay = nullptr;
    decltype(&::wtimeout) wtimeout = nullptr;
    decltype(&::wgetch) wgetch = nullptr;
    decltype(&::werase) werase = nullptr;
    decltype(&::wmove) wmove = nullptr;
    decltype(&::waddnstr) waddnstr = nullptr;
    decltype(&::wattr_set) wattr_set = nullptr;
    decltype(&::wrefresh) wrefresh = nullptr;
    decltype(&::getmaxx) getmaxx = nullptr;
    decltype(&::getmaxy) getmaxy = nullptr;
    WINDOW** standard = nullptr;  // stdscr

    WINDOW* window() const { return *standard; }
    static const Library* load();

private:
    bool find_all(void* library);
};

namespace {

template <class Pointer>
bool find_symbol(void* library, const char* name, Pointer& out) {
    out = reinterpret_cast<Pointer>(::dlsym(library, name));
    return out != nullptr;
}

attr_t attributes_of(Style style) {
    switch (style) {
        case Style::Bold:
            return A_BOLD;
        case Style::Reverse:
            return A_REVERSE;
        case Style::Dim:
            return A_DIM;
        case Style::Plain:
            break;
    }
    return A_NORMAL;
}

int key_of(int code) {
    switch (code) {
        case KEY_UP:
            return kUp;
        case KEY_DOWN:
            return kDown;
        case KEY_PPAGE:
            return kPageUp;
        case KEY_NPAGE:
            return kPageDown;
        case KEY_HOME:
            return kHome;
        case KEY_RESIZE:
            return kResized;
        case KEY_ENTER:
        case '\n':
        case '\r':
            return kEnter;
        case KEY_BACKSPACE:
        case 127:
        case '\b':
            return kErase;
        default:
            return code > 0 && code < 127 ? code : int{kNoKey};
    }
}

bool is_gone(int terminal) {
    pollfd entry{terminal, POLLIN, 0};
    return ::poll(&entry, 1, 0) == 1 && (entry.revents & (POLLHUP | POLLERR | POLLNVAL)) != 0;
}

}  // namespace

bool Terminal::Library::find_all(void* library) {
    return find_symbol(library, "newterm", newterm) && find_symbol(library, "endwin", endwin) &&
           find_symbol(library, "delscreen", delscreen) && find_symbol(library, "cbreak", cbreak) &&
           find_symbol(library, "noecho", noecho) && find_symbol(library, "keypad", keypad) &&
           find_symbol(library, "curs_set", curs_set) &&
           find_symbol(library, "set_escdelay", set_escdelay) &&
           find_symbol(library, "wtimeout", wtimeout) && find_symbol(library, "wgetch", wgetch) &&
           find_symbol(library, "werase", werase) && find_symbol(library, "wmove", wmove) &&
           find_symbol(library, "waddnstr", waddnstr) &&
           find_symbol(library, "wattr_set", wattr_set) &&
           find_symbol(library, "wrefresh", wrefresh) && find_symbol(library, "getmaxx", getmaxx) &&
           find_symbol(library, "getmaxy", getmaxy) && find_symbol(library, "stdscr", standard);
}

const Terminal::Library* Terminal::Library::load() {
    static Library library;
    // Of the headers that this is compiled with; either will do, since all text is ASCII.
    for (const char* name : {"libncursesw.so.6", "libncurses.so.6"})
        if (void* handle = ::dlopen(name, RTLD_NOW | RTLD_LOCAL))
            if (library.find_all(handle)) return &library;
    return nullptr;
}

std::unique_ptr<Terminal> Terminal::open(std::string& why) {
    const Library* const library = Library::load();
    if (library == nullptr) {
        why = "top needs ncurses to draw: apt install libncursesw6, or use --once";
        return nullptr;
    }
    std::unique_ptr<Terminal> terminal(new Terminal(*library));
    terminal->screen_ = library->newterm(nullptr, stdout, stdin);
    if (terminal->screen_ == nullptr) {
        const char* const name = std::getenv("TERM");
        why = std::string("top does not know how to draw on a terminal ") +
              (name == nullptr ? "without TERM" : name) + ": set TERM, or use --once";
        return nullptr;
    }
    library->cbreak();
    library->noecho();
    library->set_escdelay(25);  // Milliseconds: Escape is a key of its own.
    library->keypad(library->window(), true);
    library->curs_set(0);
    return terminal;
}

Terminal::~Terminal() {
    if (screen_ == nullptr) return;
    library_.endwin();
    library_.delscreen(static_cast<SCREEN*>(screen_));
}

std::size_t Terminal::rows() const {
    return static_cast<std::size_t>(std::max(1, library_.getmaxy(library_.window())));
}

std::size_t Terminal::columns() const {
    return static_cast<std::size_t>(std::max(1, library_.getmaxx(library_.window())));
}

void Terminal::clear() {
    library_.werase(library_.window());
}

void Terminal::put(std::size_t row, const std::string& text, Style style) {
    if (row >= rows()) return;
    std::string line = text.substr(0, columns());
    for (char& c : line)
        if (c < ' ' || c > '~') c = '?';
    if (style == Style::Reverse) line.resize(columns(), ' ');
    WINDOW* const window = library_.window();
    library_.wattr_set(window, attributes_of(style), 0, nullptr);
    library_.wmove(window, static_cast<int>(row), 0);
    library_.waddnstr(window, line.data(), static_cast<int>(line.size()));
    library_.wattr_set(window, A_NORMAL, 0, nullptr);
}

void Terminal::show() {
    library_.wrefresh(library_.window());
}

int Terminal::wait_for_key(std::chrono::milliseconds most) {
    library_.wtimeout(library_.window(), static_cast<int>(most.count()));
    const int code = library_.wgetch(library_.window());
    // Without a terminal it fails at once, however long it was to wait.
    return code == ERR && is_gone(STDIN_FILENO) ? int{kGone} : key_of(code);
}

}  // namespace feroce::cli
