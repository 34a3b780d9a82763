package boundedio

import (
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"time"
)

// ClientOptions configure a client.
type ClientOptions struct {
	// Timeout limits each step: connect, TLS handshake, and the wait for a response.
	Timeout time.Duration
	// TLS is the TLS configuration, and Dial connects to servers; nil means the default.
	TLS  *tls.Config
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
	// KeepIdle is how long an idle connection is kept; zero means one connection per request.
	KeepIdle time.Duration
}

// maxHeader is the maximum size of the response headers, in bytes.
const maxHeader = 16 << 10

// NewClient returns a client for untrusted servers. net/http keeps establishing a connection after its request was
// cancelled, because another request may need it: without a timeout for each step, a server that accepts and then sends
// nothing holds a connection and two goroutines forever. The client ignores the environment's HTTP proxy. It has small
// buffers and one idle connection per server, because there may be thousands of servers.
func NewClient(options ClientOptions) http.Client {
	dial := options.Dial
	if dial == nil {
		dial = (&net.Dialer{Timeout: options.Timeout}).DialContext
	}
	return http.Client{Transport: &http.Transport{
		DialContext:         dial,
		TLSClientConfig:     options.TLS,
		TLSHandshakeTimeout: options.Timeout, ResponseHeaderTimeout: options.Timeout,
		DisableKeepAlives: options.KeepIdle == 0, IdleConnTimeout: options.KeepIdle, MaxIdleConnsPerHost: 1,
		ReadBufferSize: 2 << 10, WriteBufferSize: 1 << 10, MaxResponseHeaderBytes: maxHeader,
	}}
}
