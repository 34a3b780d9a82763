package xds

import (
	"context"
	"net"
	"sync"

	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/peer"
)

// limitListener is a listener that immediately closes connections that are not admitted: a client with too many keeps
// its earlier ones.
type limitListener struct {
	net.Listener
	// admit returns a function to call when the connection is closed; nil if the connection is not admitted.
	admit func(net.Conn) (leave func())
}

// Accept returns the next admitted connection.
func (l limitListener) Accept() (net.Conn, error) {
	for {
		connection, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		if leave := l.admit(connection); leave != nil {
			return &limitedConn{Conn: connection, onClose: sync.OnceFunc(leave)}, nil
		}
		_ = connection.Close() // the client must get no information, not even the reason
	}
}

// limitedConn is a connection that calls onClose when it is closed.
type limitedConn struct {
	net.Conn
	onClose func()
}

// Close closes the connection.
func (c *limitedConn) Close() error {
	c.onClose()
	return c.Conn.Close()
}

// connCreds gives streams access to their connection, so that they can close it.
type connCreds struct {
	credentials.TransportCredentials
}

// ServerHandshake adds the connection to the AuthInfo.
func (c connCreds) ServerHandshake(connection net.Conn) (net.Conn, credentials.AuthInfo, error) {
	_, info, err := c.TransportCredentials.ServerHandshake(connection)
	return connection, authInfo{info, connection}, err
}

// authInfo has the connection of a stream.
type authInfo struct {
	credentials.AuthInfo
	connection net.Conn
}

// closeConnection closes the connection of a stream. This frees what gRPC holds for its streams: a stream that only
// ends stays in memory until its client has read all of it.
func closeConnection(ctx context.Context) {
	if from, ok := peer.FromContext(ctx); ok {
		if info, ok := from.AuthInfo.(authInfo); ok {
			_ = info.connection.Close() // it may be closed already
		}
	}
}
