/* The floor: the smallest program for the work, with the fewest system calls. It trusts every event
   of the interface, checks nothing, and exits at the first failure.

   floor NAMESPACE INTERFACE CONF_DIR SOCKET ROUTER [LOG [prepared]]

   With LOG it does the same job as keepwatch: it uses the absolute path of the state file, waits by
   poll, and writes a log line. With "prepared" it does before an event all that can be done then: it
   exchanges the state file with a spare that has the other word, and has a socket. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <net/if.h>
#include <poll.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

static struct sockaddr_un agent = {.sun_family = AF_UNIX};
static const char *router;
static char *state = "state", *new = "state.new";
static int log = -1, prepares, connection = -1;
static const char *spare = "";

static void must(long result) {
    if (result < 0)
        _exit(1);
}

static void write_new(const char *word) {
    int file = open(new, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    must(write(file, word, strlen(word)));
    close(file);
}

static void report(const char *word) {
    char text[512];
    int exchanges = !strcmp(spare, word);
    if (exchanges) {
        must(renameat2(AT_FDCWD, new, AT_FDCWD, state, RENAME_EXCHANGE));
    } else {
        write_new(word);
        must(rename(new, state));
    }
    int length = snprintf(text, sizeof text,
                          "GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Neutron-Router-Id: %s\r\n"
                          "X-Neutron-State: %s\r\nConnection: close\r\n\r\n",
                          router, word);
    if (connection < 0)
        connection = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    must(connect(connection, (struct sockaddr *)&agent, sizeof agent));
    must(send(connection, text, (size_t)length, MSG_NOSIGNAL));
    must(recv(connection, text, sizeof text, 0));
    must(memcmp(text, "HTTP/1.1 200", 12) ? -1 : 0);
    close(connection);
    connection = -1;
    if (log >= 0)
        must(dprintf(log, "router %s is %s\n", router, word));
    if (!prepares)
        return;
    connection = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    spare = strcmp(word, "backup") ? "backup" : "primary";
    if (!exchanges)
        write_new(spare);
}

int main(int count, char **arguments) {
    char buffer[8192];
    struct sockaddr_nl events = {.nl_family = AF_NETLINK,
                                 .nl_groups = RTMGRP_IPV4_IFADDR | RTMGRP_IPV6_IFADDR};
    must(count >= 6 && count <= 8 ? 0 : -1);
    prepares = count == 8;
    int namespace = open(arguments[1], O_RDONLY | O_CLOEXEC);
    must(setns(namespace, CLONE_NEWNET));
    close(namespace);
    strncpy(agent.sun_path, arguments[4], sizeof agent.sun_path - 1);
    router = arguments[5];
    if (count > 6) {
        must(asprintf(&state, "%s/state", arguments[3]));
        must(asprintf(&new, "%s.new", state));
        must(log = open(arguments[6], O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644));
    } else {
        must(chdir(arguments[3]));
    }
    unsigned interface = if_nametoindex(arguments[2]);
    int route = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE);
    must(bind(route, (struct sockaddr *)&events, sizeof events));
    report("backup");
    struct pollfd ready = {.fd = route, .events = POLLIN};
    for (;;) {
        if (log >= 0)
            must(poll(&ready, 1, -1));
        ssize_t length = recv(route, buffer, sizeof buffer, 0);
        must(length);
        for (struct nlmsghdr *message = (struct nlmsghdr *)buffer; NLMSG_OK(message, length);
             message = NLMSG_NEXT(message, length)) {
            struct ifaddrmsg *address = NLMSG_DATA(message);
            if (address->ifa_index == interface)
                report(message->nlmsg_type == RTM_NEWADDR ? "primary" : "backup");
        }
    }
}
