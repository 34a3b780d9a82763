package boundedio

import (
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"time"
)

// ClientOptions say how servers are reached.
type ClientOptions struct {
	// Timeout is how long each step may take: to connect, the TLS handshake, and the wait for an answer.
	Timeout time.Duration
	// TLS is for servers that have it; nil for the usual. Dial reaches them; nil for the usual way.
	TLS  *tls.Config
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
	// KeepIdle is how long a connection waits for the next request; zero: each has one of its own.
	KeepIdle time.Duration
}

// maxHeader bounds the headers of an answer, in bytes.
const maxHeader = 16 << 10

// NewClient returns a client for servers that anybody may run. net/http goes on with a connection when the request that
// needed it is given up, because another one may need it: without a time limit for each step, a server that accepts and then
// says nothing keeps a connection and two goroutines for ever. The environment's HTTP proxy is not used. The client has small
// buffers and one idle connection to each server, because there may be thousands.
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
