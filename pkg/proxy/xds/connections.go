package xds

import (
	"context"
	"net"
	"net/netip"
	"sync"

	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/peer"

	"github.com/vicinity-proxy/vicinity/pkg/httpserve"
)

// admitting is a listener that at once closes connections that are not admitted: a client with too many keeps those
// that it has.
type admitting struct {
	net.Listener
	// admits decides about a connection of a client, given how many the client has open, and how many there are in all.
	admits func(connection net.Conn, open, all int) bool

	mutex sync.Mutex
	open  map[netip.Addr]int
	all   int
}

// Accept returns the next connection that is admitted.
func (l *admitting) Accept() (net.Conn, error) {
	for {
		connection, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		client := httpserve.ClientOf(connection.RemoteAddr().String())
		l.mutex.Lock()
		open, all := l.open[client], l.all
		l.mutex.Unlock()
		if l.admits(connection, open, all) {
			l.count(client, 1)
			return &admitted{Conn: connection, leave: sync.OnceFunc(func() { l.count(client, -1) })}, nil
		}
		_ = connection.Close() // it must learn nothing, not even why
	}
}

func (l *admitting) count(client netip.Addr, more int) {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	l.all += more
	if l.open[client] += more; l.open[client] == 0 {
		delete(l.open, client)
	}
}

// admitted is a connection that leaves its listener's count when it is closed.
type admitted struct {
	net.Conn
	leave func()
}

// Close closes the connection.
func (c *admitted) Close() error {
	c.leave()
	return c.Conn.Close()
}

// knowing makes a connection known to its streams, so that they can close it.
type knowing struct {
	credentials.TransportCredentials
}

func newKnowing() knowing { return knowing{insecure.NewCredentials()} }

// ServerHandshake sends nothing.
func (k knowing) ServerHandshake(connection net.Conn) (net.Conn, credentials.AuthInfo, error) {
	_, info, err := k.TransportCredentials.ServerHandshake(connection)
	return connection, known{info, connection}, err
}

// known is what a stream knows of its connection.
type known struct {
	credentials.AuthInfo
	connection net.Conn
}

// closeConnection closes the connection of a stream. What gRPC holds for its streams ends with it: a stream that ends by
// itself stays in memory until its client has read all of it.
func closeConnection(of context.Context) {
	if from, ok := peer.FromContext(of); ok {
		if info, ok := from.AuthInfo.(known); ok {
			_ = info.connection.Close() // it may be closed
		}
	}
}
