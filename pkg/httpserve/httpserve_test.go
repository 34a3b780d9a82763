package httpserve

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/vicinity-proxy/vicinity/pkg/testkit/reserve"
)

func listen(t *testing.T) net.Listener {
	t.Helper()
	listener, err := net.Listen("tcp", reserve.OnLoopback(t).String())
	if err != nil {
		t.Fatal(err)
	}
	return listener
}

// serve runs Serve until stop is called. stop returns the result of Serve.
func serve(t *testing.T, listener net.Listener, handler http.Handler) (stop func() error) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- Serve(ctx, listener, handler, slog.New(slog.DiscardHandler)) }()
	return func() error {
		cancel()
		return <-done
	}
}

func get(t *testing.T, url string) (string, error) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		return "", err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return "", err
	}
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(response.Body)
	return string(body), err
}

// TestWildcardListensOnBothFamilies checks that Go treats 0.0.0.0 and :: the same, even without IPv6. So one
// address in the manifests serves load balancers of either family.
func TestWildcardListensOnBothFamilies(t *testing.T) {
	for _, address := range []string{"0.0.0.0:0", "[::]:0"} {
		listener, err := net.Listen("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		defer listener.Close()
		_, port, err := net.SplitHostPort(listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		for _, host := range []string{"127.0.0.1", "::1"} {
			conn, err := net.Dial("tcp", net.JoinHostPort(host, port))
			if err != nil {
				t.Errorf("%s: %v", address, err)
				continue
			}
			if err := conn.Close(); err != nil {
				t.Error(err)
			}
		}
	}
}

func TestServeRespondsUntilContextEnds(t *testing.T) {
	listener := listen(t)
	url := "http://" + listener.Addr().String()
	stop := serve(t, listener, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "here") }))

	body, err := get(t, url)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff("here", body); diff != "" {
		t.Errorf("body (-want +got):\n%s", diff)
	}
	if err := stop(); err != nil {
		t.Errorf("Serve() = %v", err)
	}
	if body, err := get(t, url); err == nil {
		t.Errorf("still responds with %q", body)
	}
}

func TestActiveRequestFinishes(t *testing.T) {
	listener := listen(t)
	requested, finish := make(chan struct{}), make(chan struct{})
	stop := serve(t, listener, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		close(requested)
		<-finish
		_, _ = io.WriteString(w, "finished")
	}))

	responses := make(chan string, 1)
	go func() {
		body, err := get(t, "http://"+listener.Addr().String())
		responses <- body + errorText(err)
	}()
	<-requested
	stopped := make(chan error, 1)
	go func() { stopped <- stop() }()
	close(finish)

	if diff := cmp.Diff("finished", <-responses); diff != "" {
		t.Errorf("response (-want +got):\n%s", diff)
	}
	if err := <-stopped; err != nil {
		t.Error(err)
	}
}

func TestShutdownTimeoutClosesConnections(t *testing.T) {
	listener := listen(t)
	requested, never := make(chan struct{}), make(chan struct{})
	defer close(never)
	stop := serve(t, listener, http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		close(requested)
		<-never
	}))
	clientErr := make(chan error, 1)
	go func() {
		_, err := get(t, "http://"+listener.Addr().String())
		clientErr <- err
	}()
	<-requested
	if err := stop(); err != nil {
		t.Error(err)
	}
	if err := <-clientErr; err == nil {
		t.Error("the client got a response that the handler did not send")
	}
}

func TestServeReturnsListenerError(t *testing.T) {
	listener := listen(t)
	if err := listener.Close(); err != nil {
		t.Fatal(err)
	}
	err := Serve(t.Context(), listener, http.NotFoundHandler(), slog.New(slog.DiscardHandler))
	if !errors.Is(err, net.ErrClosed) {
		t.Errorf("got %v, want %v", err, net.ErrClosed)
	}
}

func TestHandlerPanicIsLogged(t *testing.T) {
	listener := listen(t)
	var lines bytes.Buffer
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	panics := http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic("a broken handler") })
	go func() { done <- Serve(ctx, listener, panics, slog.New(slog.NewTextHandler(&lines, nil))) }()

	if _, err := get(t, "http://"+listener.Addr().String()); err == nil {
		t.Error("the broken handler responded")
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
	if !strings.Contains(lines.String(), "level=WARN") || !strings.Contains(lines.String(), "a broken handler") {
		t.Errorf("the log lacks the panic: %q", lines.String())
	}
}

func TestTimeouts(t *testing.T) {
	server := newServer(http.NotFoundHandler(), slog.New(slog.DiscardHandler))
	for name, bound := range map[string]time.Duration{
		"header": server.ReadHeaderTimeout, "read": server.ReadTimeout, "write": server.WriteTimeout, "idle": server.IdleTimeout,
	} {
		if bound <= 0 {
			t.Errorf("%s: timeout %s is unbounded", name, bound)
		}
	}
}

func TestServeWithCancelledContext(t *testing.T) {
	listener := listen(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := Serve(ctx, listener, http.NotFoundHandler(), slog.New(slog.DiscardHandler)); err != nil {
		t.Error(err)
	}
	if _, err := listener.Accept(); !errors.Is(err, net.ErrClosed) {
		t.Errorf("the listener is still open: %v", err)
	}
}

func errorText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}
