package server

import (
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	apiserver "k8s.io/apiserver/pkg/admission"

	"github.com/vicinity-proxy/vicinity/pkg/testkit/wait"
	"github.com/vicinity-proxy/vicinity/pkg/webhook/rules"
)

// withShutdownDelay sets the shutdown delay.
func withShutdownDelay(delay time.Duration) func(*Server, *Options) {
	return func(_ *Server, options *Options) {
		if options != nil {
			options.ShutdownDelay = delay
		}
	}
}

// exchange sends one review on a connection and reads the response.
func exchange(t testing.TB, connection net.Conn, body []byte) *admissionResponse {
	t.Helper()
	head := "POST %s HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s"
	if _, err := fmt.Fprintf(connection, head, ValidateServicesPath, len(body), body); err != nil {
		t.Fatal(err)
	}
	return readRawResponse(t, connection)
}

func (s *testServer) dial(t testing.TB) net.Conn {
	t.Helper()
	connection, err := (&tls.Dialer{Config: clientTLSConfig(s.pair)}).DialContext(t.Context(), "tcp", strings.TrimPrefix(s.url, "https://"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = connection.Close() })
	return connection
}

func TestDrainServesRequestsAndClosesConnections(t *testing.T) {
	const delay = 5 * time.Second // long enough for three responses
	dependencies, open := blockingDependencies(t)
	r := start(t, dependencies, DefaultLimits(), withShutdownDelay(delay))
	reviewCase := apiRequest{operation: apiserver.Create, object: service()}.review(t, ValidateServicesPath)

	stop, cancel := context.WithCancel(t.Context())
	serving := r.Drain(stop)
	kept, client := r.dial(t), r.client(t)

	late := make(chan *admissionResponse, 1)
	go func() {
		response, _, err := send(context.Background(), client, r.url+ValidateServicesPath, bytes.NewReader(reviewCase.body))
		if err != nil {
			t.Errorf("the review that was in flight: %v", err)
			response = &admissionResponse{}
		}
		late <- response
	}()
	wait.Until(t, "a review is in flight", func() bool { current, _ := r.observer.inFlightNow(); return current == 1 })
	if err := r.Ready(); err != nil {
		t.Fatalf("not ready before draining: %v", err)
	}

	began := time.Now()
	cancel()
	wait.Until(t, "the server is draining", func() bool { return r.isDraining() })
	if err := r.Ready(); err == nil || !strings.Contains(err.Error(), "draining") {
		t.Errorf("Ready() = %v", err)
	}
	open()
	for name, response := range map[string]*admissionResponse{
		"in flight": <-late, "kept": exchange(t, kept, reviewCase.body), "new": exchange(t, r.dial(t), reviewCase.body),
	} {
		if response.StatusCode != http.StatusOK || !response.Close {
			t.Errorf("%s: %d, Connection: close is %v", name, response.StatusCode, response.Close)
		}
	}
	if time.Since(began) < delay && serving.Err() != nil {
		t.Error("the context ended before the delay")
	}
	<-serving.Done()
	if took := time.Since(began); took < delay {
		t.Errorf("the context ended after %s, want %s", took, delay)
	}
	r.stop()
	ended := time.Now()
	if err := <-r.done; err != nil {
		t.Error(err)
	}
	if took := time.Since(ended); took >= delay {
		t.Errorf("drained a second time, for %s", took)
	}
	if connection, err := net.DialTimeout("tcp", strings.TrimPrefix(r.url, "https://"), time.Second); err == nil {
		_ = connection.Close()
		t.Error("the server is still listening")
	}
}

func TestServerDrainsWhenContextEnds(t *testing.T) {
	const delay = 200 * time.Millisecond
	r := start(t, withNamespace(rules.Settings{}, nil), DefaultLimits(), withShutdownDelay(delay))
	began := time.Now()
	r.stop()
	wait.Until(t, "the server is draining", func() bool { return r.isDraining() })
	if err := <-r.done; err != nil {
		t.Error(err)
	}
	if took := time.Since(began); took < delay {
		t.Errorf("ended after %s, want %s", took, delay)
	}
}

func TestShutdownTimeoutClosesConnections(t *testing.T) {
	dependencies, _ := blockingDependencies(t)
	r := start(t, dependencies, DefaultLimits(), func(server *Server, _ *Options) {
		if server != nil {
			server.grace = 100 * time.Millisecond
		}
	})
	reviewCase := apiRequest{operation: apiserver.Create, object: service()}.review(t, ValidateServicesPath)
	clientErr := make(chan error, 1)
	client := r.client(t)
	go func() {
		_, _, err := send(context.Background(), client, r.url+ValidateServicesPath, bytes.NewReader(reviewCase.body))
		clientErr <- err
	}()
	wait.Until(t, "a review is in flight", func() bool { current, _ := r.observer.inFlightNow(); return current == 1 })
	r.stop()
	if err := <-r.done; err != nil {
		t.Error(err)
	}
	if err := <-clientErr; err == nil {
		t.Error("the client got a response that the server did not send")
	}
	if !strings.Contains(r.log.String(), "closing the remaining connections") {
		t.Errorf("the log lacks the warning: %s", r.log)
	}
}
