/* A bundle's program that looks for what it could write: it opens each file below /proc, /sys and /dev for writing,
 * and writes nothing. Prints how many opened, some of their paths, its user, groups and capabilities. */
#define _XOPEN_SOURCE 700
#include <fcntl.h>
#include <ftw.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* What has no state to change, and what is the program's own. */
static const char *const HARMLESS[] = {"/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom", "/dev/tty"};

static int opened = 0;
static int seen = 0;
static char paths[2048];

static int look(const char *path, const struct stat *about, int kind, struct FTW *where) {
    (void)about;
    (void)where;
    if (kind != FTW_F && kind != FTW_NS) return 0;
    for (size_t i = 0; i < sizeof HARMLESS / sizeof *HARMLESS; i++) {
        if (strcmp(path, HARMLESS[i]) == 0) return 0;
    }
    /* A watchdog would start to count, a terminal's multiplexer makes a new terminal of the sandbox's own. */
    if (strstr(path, "watchdog") != NULL || strcmp(path, "/dev/pts/ptmx") == 0) return 0;
    seen++;
    int file = open(path, O_WRONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    if (file < 0) return 0;
    close(file);
    opened++;
    if (strlen(paths) + strlen(path) + 2 < sizeof paths) {
        strcat(paths, path);
        strcat(paths, " ");
    }
    return 0;
}

static int readable(const char *path) {
    FILE *file = fopen(path, "rb");
    if (file != NULL) fclose(file);
    return file != NULL;
}

/* The lines of /proc/self/status that say what this process may do; none where there is no /proc. */
static void print_status(void) {
    char line[512];
    FILE *file = fopen("/proc/self/status", "r");
    while (file != NULL && fgets(line, sizeof line, file) != NULL) {
        unsigned long long mask;
        char name[16];
        if (sscanf(line, "%15[A-Za-z]: %llx", name, &mask) == 2 && strncmp(line, "Cap", 3) == 0) {
            printf("\"%s\": %llu, ", name, mask);
        }
    }
    if (file != NULL) fclose(file);
}

int main(int argc, char **argv) {
    static const char *const ROOTS[] = {"/proc", "/sys", "/dev"};
    gid_t groups[64];
    int count = getgroups(64, groups);
    for (size_t i = 0; i < sizeof ROOTS / sizeof *ROOTS; i++) {
        nftw(ROOTS[i], look, 16, FTW_PHYS);
    }
    int others = 0;
    for (int i = 0; i < count; i++) {
        others += groups[i] != getgid();
    }
    printf("{\"status\": \"ok\", ");
    print_status();
    printf("\"secret\": %d, ", argc > 1 && readable(argv[1]));
    printf("\"uid\": %d, \"gid\": %d, \"groups\": %d, \"seen\": %d, \"opened\": %d, \"paths\": \"%s\"}\n", //
           (int)getuid(), (int)getgid(), others, seen, opened, paths);
    return 0;
}
