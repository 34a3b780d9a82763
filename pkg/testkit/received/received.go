// Package received counts the bytes that clients receive.
package received

import (
	"context"
	"net"
	"sync/atomic"

	"k8s.io/client-go/rest"
)

// Bytes counts the bytes that clients receive from the API server, including TLS and HTTP/2.
type Bytes struct{ atomic.Int64 }

// Wrap returns a copy of a configuration whose connections are counted.
func (b *Bytes) Wrap(config *rest.Config) *rest.Config {
	config = rest.CopyConfig(config)
	config.Dial = func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := (&net.Dialer{}).DialContext(ctx, network, address)
		if err != nil {
			return nil, err
		}
		return countedConn{conn, b}, nil
	}
	return config
}

type countedConn struct {
	net.Conn
	total *Bytes
}

func (c countedConn) Read(buffer []byte) (int, error) {
	n, err := c.Conn.Read(buffer)
	c.total.Add(int64(n))
	return n, err
}
