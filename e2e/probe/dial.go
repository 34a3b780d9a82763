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
}

func serveDial(w http.ResponseWriter, r *http.Request) {
	order, err := readOrder(r)
	if err != nil {
		respondError(w, err)
		return
	}
	respond(w, order.dial(r.Context()))
}

// dial connects as often as requested: one connection after the other, or at fixed intervals if they may
// overlap.
func (o order) dial(ctx context.Context) results {
	a := results{Servers: map[string]int{}, Clients: map[string]int{}, Errors: map[string]int{}}
	var mutex sync.Mutex
	connect := func() {
		start := time.Now()
		server, client, err := o.connect(ctx)
		mutex.Lock()
		defer mutex.Unlock()
		a.add(server, client, err, time.Since(start))
	}
	var connecting sync.WaitGroup
	for i := range o.count {
		if i > 0 && o.interval > 0 {
			select {
			case <-ctx.Done():
			case <-time.After(o.interval):
			}
		}
		if o.overlap {
			connecting.Go(connect)
		} else {
			connect()
		}
	}
	connecting.Wait()
	return a
}

func (a *results) add(server, client string, err error, took time.Duration) {
	if err != nil {
		a.Errors[plain(err)]++
		return
	}
	a.Servers[server]++
	a.Clients[client]++
	a.SlowestMS = max(a.SlowestMS, float64(took.Microseconds())/1000)
}

// connect connects once and reads the greeting.
func (o order) connect(ctx context.Context) (server, client string, err error) {
	deadline := time.Now().Add(o.timeout)
	dialer := net.Dialer{Deadline: deadline}
	if o.sourcePort != 0 {
		dialer.LocalAddr, dialer.Control = o.source(), reuseAddress
	}
	conn, err := dialer.DialContext(ctx, o.network, o.address)
	if err != nil {
		return "", "", err
	}
	defer conn.Close()
	if err := conn.SetDeadline(deadline); err != nil {
		return "", "", err
	}
	if tcp, ok := conn.(*net.TCPConn); ok && o.sourcePort != 0 {
		// A reset connection leaves no TIME_WAIT, which would block the source port.
		if err := tcp.SetLinger(0); err != nil {
			return "", "", err
		}
	}
	return greet(conn, o.network)
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
func (o order) source() net.Addr {
	if o.network == "udp" {
		return &net.UDPAddr{Port: o.sourcePort}
	}
	return &net.TCPAddr{Port: o.sourcePort}
}

func reuseAddress(_, _ string, socket syscall.RawConn) error {
	var failed error
	err := socket.Control(func(fd uintptr) {
		failed = syscall.SetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_REUSEADDR, 1)
	})
	return errors.Join(err, failed)
}

// plain removes addresses and ports from an error, so that equal errors count together.
func plain(err error) string {
	if op, ok := errors.AsType[*net.OpError](err); ok {
		return op.Op + ": " + op.Err.Error()
	}
	return err.Error()
}
