/* lookup prints the IPv4 addresses of a name, as the C library resolves it that this program is linked with. */
#include <arpa/inet.h>
#include <netdb.h>
#include <stdio.h>
#include <sys/socket.h>

int main(int argc, char **argv) {
	struct addrinfo hints = {.ai_family = AF_INET, .ai_socktype = SOCK_STREAM}, *all;
	if (argc != 2) {
		fputs("usage: lookup NAME\n", stderr);
		return 2;
	}
	int failed = getaddrinfo(argv[1], NULL, &hints, &all);
	if (failed) {
		fprintf(stderr, "%s: %s\n", argv[1], gai_strerror(failed));
		return 1;
	}
	for (struct addrinfo *a = all; a; a = a->ai_next) {
		char text[INET_ADDRSTRLEN];
		puts(inet_ntop(AF_INET, &((struct sockaddr_in *)a->ai_addr)->sin_addr, text, sizeof text));
	}
	return 0;
}
