package process

import (
	"errors"
	"math/rand/v2"
	"net"
	"strconv"
)

// The ports to choose from lie below those that the kernel gives to clients (net.ipv4.ip_local_port_range). A port from
// that range may become a client's before the program listens; and a client that dials a stopped server again and again
// could be given the server's port and connect to itself.
const (
	firstPort = 10_000
	lastPort  = 32_000
	attempts  = 100
)

var errNoPort = errors.New("no free TCP port was found")

// Listen listens on a free TCP port of a host, or of all addresses if the host is empty.
func Listen(host string) (net.Listener, error) {
	for range attempts {
		port := strconv.Itoa(firstPort + rand.IntN(lastPort-firstPort))
		if listener, err := net.Listen("tcp", net.JoinHostPort(host, port)); err == nil {
			return listener, nil
		}
	}
	return nil, errNoPort
}

// FreeAddress is an address of loopback, with a port for a program that is about to start.
func FreeAddress() (string, error) {
	listener, err := Listen("127.0.0.1")
	if err != nil {
		return "", err
	}
	return listener.Addr().String(), listener.Close()
}
