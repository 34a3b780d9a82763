package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync"
	"syscall"
	"time"
)

// results counts the outcomes of connections. Each connection counts either in Servers or in Errors, once.
type results struct {
	Servers   map[string]int `json:"answers"` // by the server's name
	Clients   map[string]int `json:"clients"` // by the client's address, as servers see it
	Errors    map[string]int `json:"errors"`
	SlowestMS float64        `json:"slowest_ms"` // of successful connections
	// Failures are the first maxFailures connections that failed.
	Failures []failure `json:"failures,omitempty"`
}

// failure is a connection that failed. Connected is when it was established, or zero if it never was.
type failure struct {
	Error     string    `json:"error"`
	Address   string    `json:"address"`
	Began     time.Time `json:"began"`
	Connected time.Time `json:"connected,omitzero"`
}

const maxFailures = 20

func serveDial(w http.ResponseWriter, r *http.Request) {
	request, err := parseDialRequest(r)
	if err != nil {
		respondError(w, err)
		return
	}
	respond(w, request.dial(r.Context()))
}

// dial connects as often as requested: one connection after the other, or at fixed intervals if they may
// overlap.
func (d dialRequest) dial(ctx context.Context) results {
	r := results{Servers: map[string]int{}, Clients: map[string]int{}, Errors: map[string]int{}}
	var mutex sync.Mutex
	connect := func() {
		start := time.Now()
		server, client, connected, err := d.connect(ctx)
		mutex.Lock()
		defer mutex.Unlock()
		if r.add(server, client, err, time.Since(start)); err != nil && len(r.Failures) < maxFailures {
			r.Failures = append(r.Failures, failure{err.Error(), d.address, start, connected})
		}
	}
	var connecting sync.WaitGroup
	for i := range d.count {
		if i > 0 && d.interval > 0 {
			select {
			case <-ctx.Done():
			case <-time.After(d.interval):
			}
		}
		if d.overlap {
			connecting.Go(connect)
		} else {
			connect()
		}
	}
	connecting.Wait()
	return r
}

func (r *results) add(server, client string, err error, took time.Duration) {
	if err != nil {
		r.Errors[errorText(err)]++
		return
	}
	r.Servers[server]++
	r.Clients[client]++
	r.SlowestMS = max(r.SlowestMS, float64(took.Microseconds())/1000)
}

// connect connects once and reads the greeting. connected is when the connection was established.
func (d dialRequest) connect(ctx context.Context) (server, client string, connected time.Time, err error) {
	deadline := time.Now().Add(d.timeout)
	dialer := net.Dialer{Deadline: deadline}
	if d.sourcePort != 0 {
		dialer.LocalAddr, dialer.Control = d.source(), reuseAddress
	}
	conn, err := dialer.DialContext(ctx, d.network, d.address)
	if err != nil {
		return "", "", connected, err
	}
	defer conn.Close()
	connected = time.Now()
	if err := conn.SetDeadline(deadline); err != nil {
		return "", "", connected, err
	}
	if tcp, ok := conn.(*net.TCPConn); ok && d.sourcePort != 0 {
		// A reset connection leaves no TIME_WAIT, which would block the source port.
		if err := tcp.SetLinger(0); err != nil {
			return "", "", connected, err
		}
	}
	server, client, err = greet(conn, d.network)
	return server, client, connected, err
}

func greet(conn net.Conn, network string) (server, client string, err error) {
	if network == "udp" {
		if _, err := conn.Write([]byte("who are you?\n")); err != nil {
			return "", "", err
		}
	}
	line, err := bufio.NewReader(conn).ReadString('\n')
	if err != nil {
		return "", "", err
	}
	server, client, ok := strings.Cut(strings.TrimSpace(line), " ")
	if !ok {
		return "", "", fmt.Errorf("not a probe's greeting: %q", line)
	}
	address, _, err := net.SplitHostPort(client)
	return server, address, err
}

// source returns the local address of a connection from a fixed port.
func (d dialRequest) source() net.Addr {
	if d.network == "udp" {
		return &net.UDPAddr{Port: d.sourcePort}
	}
	return &net.TCPAddr{Port: d.sourcePort}
}

func reuseAddress(_, _ string, socket syscall.RawConn) error {
	var optErr error
	err := socket.Control(func(fd uintptr) {
		optErr = syscall.SetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_REUSEADDR, 1)
	})
	return errors.Join(err, optErr)
}

// errorText removes addresses and ports from an error, so that equal errors count together.
func errorText(err error) string {
	if op, ok := errors.AsType[*net.OpError](err); ok {
		return op.Op + ": " + op.Err.Error()
	}
	return err.Error()
}
