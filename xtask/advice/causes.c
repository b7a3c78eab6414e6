/* A small program for each cause: `causes NAME`. Another thread keeps the address space loaded on a second CPU. With
   FIXED=1 in its environment it does the same work with the fix that `tlbscope explain` advises. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <linux/membarrier.h>
#include <linux/userfaultfd.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define PAGE 4096L
enum { READ = PROT_READ, BOTH = PROT_READ | PROT_WRITE, PRIVATE = MAP_PRIVATE | MAP_ANONYMOUS };

static int is_fixed;
static volatile int is_over;
static volatile long sum;

static char *fresh(long pages) {
    return mmap(0, pages * PAGE, BOTH, PRIVATE, -1, 0);
}

/* Small pages, whatever the machine's setting is: their number is what these programs are about. */
static char *small(long pages) {
    char *memory = fresh(pages);
    madvise(memory, pages * PAGE, MADV_NOHUGEPAGE);
    return memory;
}

static void fill(char *memory, long pages, char with) {
    for (long page = 0; page < pages; page++)
        memory[page * PAGE] = with;
}

static void add(const char *memory, long pages) {
    for (long page = 0; page < pages; page++)
        sum += memory[page * PAGE];
}

static void *spin(void *nothing) {
    while (!is_over)
        ;
    return nothing;
}

/* Map, use, unmap; fixed: the mapping is kept. */
static void pairs(void) {
    char *kept = is_fixed ? small(64) : 0;
    for (int round = 0; round < 6000; round++) {
        char *memory = kept ? kept : small(64);
        fill(memory, 64, (char)round);
        if (!kept)
            munmap(memory, 64 * PAGE);
    }
}

/* A file is mapped for each request; fixed: it is read into memory that is kept. */
static void files(void) {
    static char buffer[64 * 4096];
    int file = open("causes.bin", O_RDWR | O_CREAT, 0600);
    if (write(file, buffer, sizeof buffer) < 0)
        return;
    for (int round = 0; round < 20000; round++) {
        if (is_fixed) {
            sum += pread(file, buffer, sizeof buffer, 0);
            add(buffer, 64);
            continue;
        }
        char *memory = mmap(0, sizeof buffer, READ, MAP_PRIVATE | MAP_POPULATE, file, 0);
        add(memory, 64);
        munmap(memory, sizeof buffer);
    }
    close(file);
    unlink("causes.bin");
}

static void *deep(void *nothing) {
    volatile char stack[40 * 4096];
    fill((char *)stack, 40, 1);
    return nothing;
}

/* A thread for each piece of work, with a stack that is too large to be cached; fixed: one thread does all of it. */
static void stacks(void) {
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, 48L << 20);
    for (int round = 0; round < 6000; round++) {
        pthread_t thread;
        if (is_fixed) {
            deep(0);
        } else {
            pthread_create(&thread, &attributes, deep, 0);
            pthread_join(thread, 0);
        }
    }
}

/* Memory is given back after each use; fixed: after every 32nd. */
static void given_back(long pages, int advice, int rounds) {
    char *memory = small(pages);
    for (int round = 0; round < rounds; round++) {
        fill(memory, pages, (char)round);
        if (!is_fixed || round % 32 == 0)
            madvise(memory, pages * PAGE, advice);
    }
}

static void few(void) {
    given_back(8, MADV_DONTNEED, 40000);
}

static void many(void) {
    given_back(512, MADV_DONTNEED, 800);
}

static void lazily(void) {
    given_back(64, MADV_FREE, 60000);
}

/* A cache in shared memory punches records out; fixed: it overwrites them. */
static void punch(void) {
    int file = memfd_create("cache", 0);
    if (ftruncate(file, 256 * PAGE))
        return;
    char *memory = mmap(0, 256 * PAGE, BOTH, MAP_SHARED, file, 0);
    for (int round = 0; round < 20000; round++) {
        long at = round % 16 * 16 * PAGE;
        fill(memory + at, 16, (char)round);
        if (!is_fixed)
            fallocate(file, FALLOC_FL_KEEP_SIZE | FALLOC_FL_PUNCH_HOLE, at, 16 * PAGE);
    }
}

/* A page is protected so that all other threads see what was written before; fixed: membarrier. */
static void barrier(void) {
    char *page = fresh(1);
    page[0] = 1;
    syscall(SYS_membarrier, MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED, 0, 0);
    for (int round = 0; round < 50000; round++) {
        if (is_fixed) {
            syscall(SYS_membarrier, MEMBARRIER_CMD_PRIVATE_EXPEDITED, 0, 0);
            continue;
        }
        mprotect(page, PAGE, READ);
        mprotect(page, PAGE, BOTH);
        page[0] = 1;
    }
}

/* The whole code area becomes writable for one function; fixed: only its page does. */
static void flip(void) {
    char *area = small(4096);
    fill(area, 4096, 1);
    for (int round = 0; round < 3000; round++) {
        long at = round % 4096 * PAGE;
        char *from = is_fixed ? area + at : area;
        mprotect(from, is_fixed ? PAGE : 4096 * PAGE, BOTH);
        area[at] = 2;
        mprotect(from, is_fixed ? PAGE : 4096 * PAGE, READ);
    }
}

/* Eight pages are writable while they are written; fixed: they are written through a second mapping. */
static void twice(void) {
    int file = memfd_create("twice", 0);
    if (ftruncate(file, 8 * PAGE))
        return;
    char *readable = mmap(0, 8 * PAGE, is_fixed ? READ : BOTH, MAP_SHARED, file, 0);
    char *writable = is_fixed ? mmap(0, 8 * PAGE, BOTH, MAP_SHARED, file, 0) : readable;
    for (int round = 0; round < 50000; round++) {
        if (!is_fixed)
            mprotect(readable, 8 * PAGE, BOTH);
        fill(writable, 8, (char)round);
        if (!is_fixed)
            mprotect(readable, 8 * PAGE, READ);
        add(readable, 8);
    }
}

static int faults;
static char *tracked;
enum { TRACKED = 4096 };

static void protect(unsigned long from, unsigned long bytes, unsigned long mode) {
    struct uffdio_writeprotect range = {{from, bytes}, mode};
    ioctl(faults, UFFDIO_WRITEPROTECT, &range);
}

static void *allow(void *nothing) {
    unsigned long bytes = (is_fixed ? 64 : 1) * PAGE;
    struct uffd_msg message;
    while (read(faults, &message, sizeof message) == sizeof message)
        protect(message.arg.pagefault.address & ~(bytes - 1), bytes, 0);
    return nothing;
}

/* What is written is tracked page by page; fixed: in pieces of 64 pages. */
static void tracking(void) {
    struct uffdio_api api = {UFFD_API, 0, 0};
    faults = (int)syscall(SYS_userfaultfd, O_CLOEXEC);
    tracked = mmap(0, (TRACKED + 64) * PAGE, BOTH, PRIVATE, -1, 0);
    tracked = (char *)(((unsigned long)tracked + 64 * PAGE - 1) & -(64UL * PAGE));
    madvise(tracked, TRACKED * PAGE, MADV_NOHUGEPAGE);
    fill(tracked, TRACKED, 1);
    struct uffdio_register range = {{(unsigned long)tracked, TRACKED * PAGE}, UFFDIO_REGISTER_MODE_WP, 0};
    if (ioctl(faults, UFFDIO_API, &api) || ioctl(faults, UFFDIO_REGISTER, &range))
        return;
    pthread_t handler;
    pthread_create(&handler, 0, allow, 0);
    for (int round = 0; round < 12; round++) {
        protect((unsigned long)tracked, TRACKED * PAGE, UFFDIO_WRITEPROTECT_MODE_WP);
        fill(tracked, TRACKED, (char)round);
    }
}

/* A child that lives for a snapshot makes each write copy; fixed: what it does not need is kept from it. */
static void snapshot(void) {
    char *memory = small(8192);
    fill(memory, 8192, 1);
    if (is_fixed)
        madvise(memory, 8192 * PAGE, MADV_DONTFORK);
    for (int round = 0; round < 12; round++) {
        pid_t child = fork();
        if (!child)
            pause();
        fill(memory, 8192, (char)round);
        kill(child, SIGKILL);
        waitpid(child, 0, 0);
    }
}

/* New memory is read before it is written; fixed: it is written first. */
static void zeroes(void) {
    for (int round = 0; round < 40; round++) {
        char *memory = small(4096);
        for (long page = 0; page < 4096; page++) {
            if (!is_fixed)
                sum += memory[page * PAGE];
            memory[page * PAGE] = 1;
        }
        munmap(memory, 4096 * PAGE);
    }
}

/* A large process starts programs by fork; fixed: by posix_spawn. */
static void starts(void) {
    extern char **environ;
    char *words[] = {"true", 0}, *memory = small(196608);
    fill(memory, 196608, 1);
    for (int round = 0; round < 60; round++) {
        pid_t child;
        if (is_fixed) {
            posix_spawn(&child, "/bin/true", 0, 0, words, environ);
        } else {
            child = fork();
            if (!child) {
                execv("/bin/true", words);
                _exit(1);
            }
        }
        waitpid(child, 0, 0);
    }
}

/* Memory is used for the first time; fixed by huge pages, which are a setting. */
static void anew(void) {
    fill(fresh(262144), 262144, 1);
}

/* A shared file is mapped and used page by page; fixed: it is brought in at once. */
static void shared(void) {
    int file = memfd_create("shared", 0);
    if (ftruncate(file, 262144 * PAGE) || fallocate(file, 0, 0, 262144 * PAGE))
        return;
    char *memory = mmap(0, 262144 * PAGE, BOTH, MAP_SHARED | (is_fixed ? MAP_POPULATE : 0), file, 0);
    add(memory, 262144);
}

/* A file is synced after each change; fixed: after every 16th. */
static void synced(void) {
    int file = open("causes-synced.bin", O_RDWR | O_CREAT, 0600);
    if (ftruncate(file, 256 * PAGE))
        return;
    char *memory = mmap(0, 256 * PAGE, BOTH, MAP_SHARED, file, 0);
    for (int round = 0; round < 1500; round++) {
        fill(memory, 256, (char)round);
        if (!is_fixed || round % 16 == 0)
            msync(memory, 256 * PAGE, MS_SYNC);
    }
    close(file);
    unlink("causes-synced.bin");
}

/* Three that are slow for other reasons. */
static void computes(void) {
    unsigned long state = 1;
    for (long n = 0; n < 400000000; n++)
        state = state * 6364136223846793005u + 1442695040888963407u;
    sum = (long)state;
}

static void reads(void) {
    static char buffer[4096];
    int file = open("/dev/zero", O_RDONLY);
    for (int n = 0; n < 1000000; n++)
        sum += read(file, buffer, sizeof buffer);
}

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static void *takes(void *nothing) {
    for (int n = 0; n < 20000000; n++) {
        pthread_mutex_lock(&lock);
        sum++;
        pthread_mutex_unlock(&lock);
    }
    return nothing;
}

static void locks(void) {
    pthread_t other;
    pthread_create(&other, 0, takes, 0);
    takes(0);
    pthread_join(other, 0);
}

static const struct {
    const char *name;
    void (*run)(void);
    int has_company;
} ALL[] = {
    {"pairs", pairs, 0}, {"files", files, 1}, {"stacks", stacks, 0}, {"few", few, 0}, {"many", many, 0},
    {"lazily", lazily, 0}, {"punch", punch, 0}, {"barrier", barrier, 1}, {"flip", flip, 0}, {"twice", twice, 1},
    {"tracking", tracking, 0}, {"snapshot", snapshot, 0}, {"zeroes", zeroes, 0}, {"starts", starts, 0},
    {"anew", anew, 0}, {"shared", shared, 0}, {"synced", synced, 0}, {"computes", computes, 0}, {"reads", reads, 0},
    {"locks", locks, 0},
};

int main(int count, char **words) {
    is_fixed = getenv("FIXED") != 0;
    for (unsigned long at = 0; at < sizeof ALL / sizeof *ALL; at++) {
        if (count != 2 || strcmp(words[1], ALL[at].name))
            continue;
        pthread_t other;
        if (ALL[at].has_company)
            pthread_create(&other, 0, spin, 0);
        ALL[at].run();
        is_over = 1;
        return 0;
    }
    fprintf(stderr, "causes: want the name of one cause\n");
    return 2;
}
