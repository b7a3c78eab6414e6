// One JSON object a line over the serial port, and the exit of the emulator.

#include "kernel.h"

#define SERIAL 0x3f8
#define LINE_STATUS (SERIAL + 5)
#define CAN_SEND 0x20
#define DEBUG_EXIT 0xf4

static inline void out8(uint16_t port, uint8_t value) { __asm__ volatile("outb %0, %1" ::"a"(value), "Nd"(port)); }
static inline uint8_t in8(uint16_t port) {
    uint8_t value;
    __asm__ volatile("inb %1, %0" : "=a"(value) : "Nd"(port));
    return value;
}

static void put(char c) {
    while (!(in8(LINE_STATUS) & CAN_SEND))
        relax();
    out8(SERIAL, (uint8_t)c);
}

static void put_text(const char *text) {
    while (*text)
        put(*text++);
}

static void put_key(const char *key) { put_text(", \""), put_text(key), put_text("\": "); }

void line_begin(const char *test) { put_text("{\"test\": \""), put_text(test), put('"'); }

void line_number(const char *key, uint64_t value) {
    char digits[20];
    unsigned count = 0;
    put_key(key);
    do
        digits[count++] = (char)('0' + value % 10);
    while (value /= 10);
    while (count)
        put(digits[--count]);
}

void line_text(const char *key, const char *text, size_t bytes) {
    put_key(key), put('"');
    for (size_t i = 0; i < bytes; i++) {
        if (text[i] == '"' || text[i] == '\\')
            put('\\');
        put(text[i]);
    }
    put('"');
}

void line_end(void) { put_text("}\n"); }

_Noreturn void leave(enum outcome outcome) {
    __asm__ volatile("outl %0, %1" ::"a"(outcome), "Nd"((uint16_t)DEBUG_EXIT));
    for (;;)
        __asm__ volatile("cli; hlt");
}

_Noreturn void fail(const char *file, uint32_t line, const char *what) {
    static bool has_failed;
    // Several CPUs may fail at once: the first one tells, and ends the emulator.
    while (__atomic_exchange_n(&has_failed, true, __ATOMIC_RELAXED))
        relax();
    size_t file_bytes = 0, what_bytes = 0;
    while (file[file_bytes])
        file_bytes++;
    while (what[what_bytes])
        what_bytes++;
    line_begin("failed");
    line_number("cpu", this_cpu());
    line_text("file", file, file_bytes);
    line_number("line", line);
    line_text("what", what, what_bytes);
    line_end();
    leave(FAILED);
}
