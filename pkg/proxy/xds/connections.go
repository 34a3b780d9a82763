package xds

import (
	"context"
	"net"
	"sync"

	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/peer"
)

// admitting is a listener that at once closes connections that are not admitted: a client with too many keeps those
// that it has.
type admitting struct {
	net.Listener
	// admit returns what is called when the connection is closed; nil if it is not admitted.
	admit func(net.Conn) (leave func())
}

// Accept returns the next connection that is admitted.
func (l admitting) Accept() (net.Conn, error) {
	for {
		connection, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		if leave := l.admit(connection); leave != nil {
			return &admitted{Conn: connection, leave: sync.OnceFunc(leave)}, nil
		}
		_ = connection.Close() // it must learn nothing, not even why
	}
}

// admitted is a connection that gives its place back when it is closed.
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
