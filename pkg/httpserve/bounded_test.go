package httpserve

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"testing"
	"time"

	"github.com/vicinity-proxy/vicinity/pkg/testkit/wait"
)

// TestLimitClosesConnectionsOfBusiestClient checks that a client which holds the maximum number of idle connections,
// and opens more, loses its own. Another client keeps its connection.
func TestLimitClosesConnectionsOfBusiestClient(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	response := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "ok") })
	go func() { ended <- Serve(ctx, listener, response, slog.New(slog.DiscardHandler)) }()
	defer func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}()
	opened := 0
	kubelet := clientFrom("127.0.0.2", &opened)
	request(t, kubelet, listener.Addr())

	var greedy []net.Conn
	for range 3 * maxConnections {
		connection, err := net.DialTimeout("tcp", listener.Addr().String(), wait.Timeout)
		if err != nil {
			t.Fatal(err)
		}
		defer connection.Close()
		greedy = append(greedy, connection)
		if len(greedy)%100 == 0 {
			request(t, kubelet, listener.Addr())
			request(t, clientFrom("127.0.0.3", new(int)), listener.Addr()) // a client that connects while the limit is reached
		}
	}
	if opened != 1 {
		t.Errorf("the other client opened %d connections, want 1", opened)
	}
	for i, connection := range greedy[:2*maxConnections] {
		_ = connection.SetReadDeadline(time.Now().Add(wait.Timeout))
		_, err := connection.Read(make([]byte, 1))
		if err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
			t.Fatalf("connection %d of the greedy client is still open: %v", i, err)
		}
	}
}

// clientFrom returns a client with its own address. It counts the connections that it opens.
func clientFrom(addr string, opened *int) *http.Client {
	dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(addr)}}
	return &http.Client{Timeout: wait.Timeout, Transport: &http.Transport{
		DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
			*opened++
			return dialer.DialContext(ctx, network, address)
		},
	}}
}

func request(t *testing.T, client *http.Client, server net.Addr) {
	t.Helper()
	response, err := client.Get("http://" + server.String() + "/")
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	if body, err := io.ReadAll(response.Body); err != nil || string(body) != "ok" {
		t.Fatalf("response %q, %v", body, err)
	}
}
