/* A bundle's program that tries to get out: escape SECRET PORT TARGET TEMPORARY. Prints what it could do. */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static int opens(const char *path, const char *mode) {
    FILE *file = fopen(path, mode);
    if (file != NULL) fclose(file);
    return file != NULL;
}

static int connects(int port) {
    struct sockaddr_in address;
    int there = socket(AF_INET, SOCK_STREAM, 0);
    memset(&address, 0, sizeof address);
    address.sin_family = AF_INET;
    address.sin_port = htons((unsigned short)port);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    return there >= 0 && connect(there, (struct sockaddr *)&address, sizeof address) == 0;
}

int main(int argc, char **argv) {
    if (argc < 5) {
        abort();
    }
    const char *token = getenv("EDGEPACK_TEST_TOKEN");
    printf("{\"status\": \"ok\", \"reads\": %d, \"connects\": %d, \"writes\": %d, \"in_bundle\": %d,", //
           opens(argv[1], "rb"), connects(atoi(argv[2])), opens(argv[3], "wb"), opens("left_behind", "wb"));
    printf(" \"temporary\": %d, \"manifest\": %d, \"token\": %d, \"parent\": %d}\n", //
           opens(argv[4], "wb"), opens("manifest.json", "rb"), token != NULL, getppid() > 2);
    return 0;
}
