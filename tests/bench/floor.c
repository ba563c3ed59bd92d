/* The floor: the smallest program for the work, with the fewest system calls. It trusts every event
   of the interface, checks nothing, and exits at the first failure.

   floor NAMESPACE INTERFACE CONF_DIR SOCKET ROUTER [LOG [prepared | LAN ADDRESSES]]

   With LOG it does the same job as keepwatch: it uses the absolute path of the state file, waits by
   poll, and writes a log line. With "prepared" it does before an event all that can be done then: it
   exchanges the state file with a spare that has the other word, and has a socket. With LAN it then
   announces this number of addresses of that interface, from 10.0.0.1 on, a round in a loop. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <fcntl.h>
#include <linux/if_packet.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <net/if.h>
#include <netinet/if_ether.h>
#include <poll.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

static struct sockaddr_un agent = {.sun_family = AF_UNIX};
static const char *router;
static char *state = "state", *new = "state.new";
static int log = -1, prepares, connection = -1;
static const char *spare = "";
static int packets, addresses;
static struct sockaddr_ll lan = {.sll_family = AF_PACKET};
static struct {
    struct ether_header ethernet;
    struct ether_arp arp;
} frame;

static void must(long result) {
    if (result < 0)
        _exit(1);
}

static void write_new(const char *word) {
    int file = open(new, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    must(write(file, word, strlen(word)));
    close(file);
}

static void open_lan(const char *name) {
    struct ifreq request;
    strncpy(request.ifr_name, name, IFNAMSIZ);
    must(packets = socket(AF_PACKET, SOCK_RAW | SOCK_CLOEXEC, 0));
    must(setsockopt(packets, SOL_PACKET, PACKET_QDISC_BYPASS, &(int){1}, sizeof(int)));
    must(ioctl(packets, SIOCGIFHWADDR, &request));
    lan.sll_ifindex = (int)if_nametoindex(name);
    memset(frame.ethernet.ether_dhost, 0xff, ETH_ALEN);
    memcpy(frame.ethernet.ether_shost, request.ifr_hwaddr.sa_data, ETH_ALEN);
    memcpy(frame.arp.arp_sha, request.ifr_hwaddr.sa_data, ETH_ALEN);
    frame.ethernet.ether_type = htons(ETHERTYPE_ARP);
    frame.arp.ea_hdr = (struct arphdr){htons(ARPHRD_ETHER), htons(ETHERTYPE_IP), ETH_ALEN, 4, 0};
}

static void announce(void) {
    for (int number = 1; number <= addresses; number++)
        for (int operation = ARPOP_REQUEST; operation <= ARPOP_REPLY; operation++) {
            in_addr_t address = htonl(0x0a000000u + (unsigned)number);
            if (operation == ARPOP_REPLY)
                memcpy(frame.arp.arp_tha, frame.arp.arp_sha, ETH_ALEN);
            else
                memset(frame.arp.arp_tha, 0, ETH_ALEN);
            memcpy(frame.arp.arp_spa, &address, 4);
            memcpy(frame.arp.arp_tpa, &address, 4);
            frame.arp.arp_op = htons((unsigned short)operation);
            must(sendto(packets, &frame, sizeof frame, 0, (struct sockaddr *)&lan, sizeof lan));
        }
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
    if (!strcmp(word, "primary"))
        announce();
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
    must(count >= 6 && count <= 9 ? 0 : -1);
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
    if (count > 8) {
        addresses = atoi(arguments[8]);
        open_lan(arguments[7]);
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
