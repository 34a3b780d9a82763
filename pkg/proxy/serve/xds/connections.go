package xds

import (
	"context"
	"net"
	"sync"

	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/peer"
)

// limitListener is a listener that at once closes connections that are not admitted: a client with too many keeps those
// that it has.
type limitListener struct {
	net.Listener
	// admit returns what is called when the connection is closed; nil if it is not admitted.
	admit func(net.Conn) (leave func())
}

// Accept returns the next connection that is admitted.
func (l limitListener) Accept() (net.Conn, error) {
	for {
		connection, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		if leave := l.admit(connection); leave != nil {
			return &limitedConn{Conn: connection, onClose: sync.OnceFunc(leave)}, nil
		}
		_ = connection.Close() // it must learn nothing, not even why
	}
}

// limitedConn is a connection that gives its place back when it is closed.
type limitedConn struct {
	net.Conn
	onClose func()
}

// Close closes the connection.
func (c *limitedConn) Close() error {
	c.onClose()
	return c.Conn.Close()
}

// connCreds makes a connection known to its streams, so that they can close it.
type connCreds struct {
	credentials.TransportCredentials
}

// ServerHandshake sends nothing.
func (k connCreds) ServerHandshake(connection net.Conn) (net.Conn, credentials.AuthInfo, error) {
	_, info, err := k.TransportCredentials.ServerHandshake(connection)
	return connection, authInfo{info, connection}, err
}

// authInfo is what a stream knows of its connection.
type authInfo struct {
	credentials.AuthInfo
	connection net.Conn
}

// closeConnection closes the connection of a stream. What gRPC holds for its streams ends with it: a stream that ends by
// itself stays in memory until its client has read all of it.
func closeConnection(of context.Context) {
	if from, ok := peer.FromContext(of); ok {
		if info, ok := from.AuthInfo.(authInfo); ok {
			_ = info.connection.Close() // it may be closed
		}
	}
}
