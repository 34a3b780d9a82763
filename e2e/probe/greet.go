package main

import (
	"fmt"
	"io"
	"net"
)

// greeting returns the first data that a server sends: its name, and the client's address as the server sees it.
func greeting(name string, client net.Addr) []byte {
	return fmt.Appendf(nil, "%s %s\n", name, client)
}

// greetConnections greets every client that connects, and then echoes its data until the client closes. It returns when
// the listener fails.
func greetConnections(listener net.Listener, name string) error {
	for {
		conn, err := listener.Accept()
		if err != nil {
			return fmt.Errorf("accept connection: %w", err)
		}
		go func() {
			defer conn.Close()
			if _, err := conn.Write(greeting(name, conn.RemoteAddr())); err != nil {
				return // the client closed the connection
			}
			_, _ = io.Copy(conn, conn) // until the client closes
		}()
	}
}

// greetPackets replies to every datagram with the greeting. It returns when the socket fails.
func greetPackets(packets net.PacketConn, name string) error {
	buffer := make([]byte, 1500)
	for {
		_, client, err := packets.ReadFrom(buffer)
		if err != nil {
			return fmt.Errorf("receive datagrams: %w", err)
		}
		_, _ = packets.WriteTo(greeting(name, client), client) // a client without a reply retries
	}
}
