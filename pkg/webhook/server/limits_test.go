package server

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apiserver "k8s.io/apiserver/pkg/admission"

	"github.com/vicinity-proxy/vicinity/pkg/testkit/wait"
	"github.com/vicinity-proxy/vicinity/pkg/webhook/rules"
)

// largeReview returns a review with a body of more than largeBytes.
func largeReview(t testing.TB) reviewCase {
	t.Helper()
	large := service(annotated("filler", strings.Repeat("x", 8*largeBytes)))
	return apiRequest{operation: apiserver.Create, object: large}.review(t, ValidateServicesPath)
}

// startSlowSender announces a body and sends only its beginning. It lasts as long as the test.
func (s *testServer) startSlowSender(t testing.TB, announced int64, begin string) {
	t.Helper()
	connection := s.dial(t)
	head := fmt.Sprintf("POST %s HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n",
		ValidateServicesPath, announced)
	if _, err := io.WriteString(connection, head+begin); err != nil {
		t.Fatal(err)
	}
}

func TestSlowSendersDoNotBlockOthers(t *testing.T) {
	const senders = 100
	limits := DefaultLimits()
	r := start(t, withNamespace(rules.Settings{}, nil), limits, nil)
	for range senders {
		r.startSlowSender(t, limits.Body, "{")
	}
	wait.Until(t, "all senders are connected", func() bool { return r.connections.Load() == senders })
	client := r.client(t)
	small, large := apiRequest{operation: apiserver.Create, object: service()}.review(t, ValidateServicesPath), largeReview(t)
	for _, reviewCase := range []reviewCase{small, large, small, large, small, large} { // some while the slow ones are still being read
		response, body, err := send(t.Context(), client, r.url+ValidateServicesPath, bytes.NewReader(reviewCase.body))
		if err != nil || response.StatusCode != http.StatusOK || !reviewCase.verified(t, body).Allowed {
			t.Errorf("a review of %d bytes got %v %s, %v", len(reviewCase.body), response, body, err)
		}
	}
}

func TestMemoryCountsReceivedBytes(t *testing.T) {
	limits := DefaultLimits()
	for _, announced := range []int64{-1, limits.Body} {
		for _, arrived := range []int64{0, 1, 6000, largeBytes, largeBytes + 1, limits.Body - 1} {
			l := newLimiter(limits)
			request := post(nil)
			request.ContentLength, request.Body = announced, io.NopCloser(io.LimitReader(zeros{}, arrived))
			body, release, err := l.read(httptest.NewRecorder(), request)
			if err != nil || int64(len(body)) != arrived {
				t.Fatalf("%d bytes: %d, %v", arrived, len(body), err)
			}
			free := limits.Bodies + limits.LargeBodies - arrived
			if beginning := min(arrived, largeBytes); !l.bodies.TryAcquire(limits.Bodies-beginning) ||
				!l.largeBodies.TryAcquire(limits.LargeBodies-(arrived-beginning)) {
				t.Errorf("%d bytes, announced %d: less than %d bytes are free", arrived, announced, free)
			}
			if l.bodies.TryAcquire(1) || l.largeBodies.TryAcquire(1) {
				t.Errorf("%d bytes, announced %d: more than %d bytes are free", arrived, announced, free)
			}
			release()
			if arrived > 0 && !l.bodies.TryAcquire(min(arrived, largeBytes)) {
				t.Errorf("%d bytes, announced %d: memory is not released", arrived, announced)
			}
		}
	}
}

func TestLargeBodiesLeaveMemoryForOthers(t *testing.T) {
	limits := Limits{Body: 1 << 20, Bodies: 10 * largeBytes, LargeBodies: 1<<20 - largeBytes} // enough for one large body
	l := newLimiter(limits)
	read := func(size int64) int {
		_, _, err := l.read(httptest.NewRecorder(), post(make([]byte, size)))
		if rejection, ok := errors.AsType[*rejectedRequest](err); ok {
			return rejection.code
		}
		return 0
	}
	if code := read(limits.Body); code != 0 {
		t.Errorf("the first large body gets %d", code)
	}
	for range 20 {
		if code := read(limits.Body); code != http.StatusServiceUnavailable {
			t.Errorf("while one large body is held, the next gets %d", code)
		}
	}
	if code := read(largeBytes); code != 0 {
		t.Errorf("while one large body is held, one that is not large gets %d", code)
	}
}

// concurrencyMeter records the maximum number of concurrent calls of Settings, and delays each request.
type concurrencyMeter struct{ current, peak atomic.Int64 }

func (m *concurrencyMeter) dependencies() Dependencies {
	dependencies := withNamespace(rules.Settings{}, nil)
	settings := dependencies.Settings
	dependencies.Settings = func() *rules.Settings {
		current := m.current.Add(1)
		defer m.current.Add(-1)
		for peak := m.peak.Load(); current > peak && !m.peak.CompareAndSwap(peak, current); peak = m.peak.Load() {
		}
		time.Sleep(10 * time.Millisecond)
		return settings()
	}
	return dependencies
}

func TestLargeReviewsAreSerialized(t *testing.T) {
	const reviews = 8
	var meter concurrencyMeter
	handler := Handlers(meter.dependencies(), DefaultLimits(), noObserver{}, slog.New(slog.DiscardHandler))[ValidateServicesPath]
	reviewCase := largeReview(t)
	codes := make(chan int, reviews)
	for range reviews {
		go func() { codes <- postAndGetCode(handler, reviewCase.body) }()
	}
	for range reviews {
		if code := <-codes; code != http.StatusOK {
			t.Errorf("a large review got %d", code)
		}
	}
	if peak := meter.peak.Load(); peak != 1 {
		t.Errorf("%d large reviews were processed concurrently", peak)
	}
}

func TestSmallReviewsDoNotWaitForLargeOnes(t *testing.T) {
	const largeReviews = 100 // more than may be in flight
	large := largeReview(t)
	entered, proceed := make(chan struct{}), make(chan struct{})
	dependencies := withNamespace(rules.Settings{}, nil)
	settings := dependencies.Settings
	var isBlocked atomic.Bool
	dependencies.Settings = func() *rules.Settings {
		if isBlocked.CompareAndSwap(false, true) {
			close(entered)
			<-proceed
		}
		return settings()
	}
	handler := Handlers(dependencies, DefaultLimits(), noObserver{}, slog.New(slog.DiscardHandler))[ValidateServicesPath]
	ctx, cancel := context.WithCancel(t.Context())
	codes := make(chan int, largeReviews)
	sendLarge := func(ctx context.Context) {
		recorded := httptest.NewRecorder()
		handler.ServeHTTP(recorded, post(large.body).WithContext(ctx))
		codes <- recorded.Code
	}
	go sendLarge(t.Context())
	<-entered
	for range largeReviews - 1 {
		go sendLarge(ctx)
	}
	small := apiRequest{operation: apiserver.Create, object: service()}.review(t, ValidateServicesPath).body
	for range 100 {
		if code := postAndGetCode(handler, small); code != http.StatusOK {
			t.Fatalf("while large reviews wait, a small one gets %d", code)
		}
		time.Sleep(time.Millisecond) // so that more of the large ones wait
	}
	cancel()
	for range largeReviews - 1 {
		select {
		case code := <-codes:
			if code != http.StatusServiceUnavailable {
				t.Errorf("a large review whose client disconnected gets %d", code)
			}
		case <-time.After(wait.Timeout):
			t.Fatal("a large review whose client disconnected is still waiting")
		}
	}
	close(proceed)
	if code := <-codes; code != http.StatusOK {
		t.Errorf("the large review in progress gets %d", code)
	}
	if code := postAndGetCode(handler, large.body); code != http.StatusOK {
		t.Errorf("after that, the next large review gets %d", code)
	}
}

// rawClient sends the same review repeatedly on one connection. It is cheap, because benchmarks count its time, too.
type rawClient struct {
	connection net.Conn
	reader     *bufio.Reader
	request    []byte
}

func (s *testServer) newRawClient(t testing.TB, path string, body []byte) *rawClient {
	connection := s.dial(t)
	head := fmt.Sprintf("POST %s?timeout=2s HTTP/1.1\r\n"+
		"Host: vicinity-webhook.vicinity-system.svc\r\nUser-Agent: kube-apiserver-admission\r\n"+
		"Content-Type: application/json\r\nAccept: application/json, */*\r\nContent-Length: %d\r\n\r\n", path, len(body))
	return &rawClient{connection, bufio.NewReader(connection), append([]byte(head), body...)}
}

func (c *rawClient) send() error {
	if _, err := c.connection.Write(c.request); err != nil {
		return err
	}
	response, err := http.ReadResponse(c.reader, nil)
	if err != nil {
		return err
	}
	result, err := readResponse(response)
	if err != nil {
		return err
	}
	if result.StatusCode != http.StatusOK || result.Close {
		return fmt.Errorf("status %d, Connection: close is %v", result.StatusCode, result.Close)
	}
	return nil
}

func TestConnectionLimits(t *testing.T) {
	r := start(t, withNamespace(rules.Settings{}, nil), DefaultLimits(), nil)
	reviewCase := apiRequest{operation: apiserver.Create, object: service()}.review(t, ValidateServicesPath)
	for i := 1; i <= softMaxConnections; i++ {
		if err := r.newRawClient(t, ValidateServicesPath, reviewCase.body).send(); err != nil { // an error if the response asks to close
			t.Fatalf("connection %d: %v", i, err)
		}
	}
	extra := r.newRawClient(t, ValidateServicesPath, reviewCase.body)
	if err := extra.send(); err == nil || !strings.Contains(err.Error(), "Connection: close is true") {
		t.Errorf("beyond %d connections: %v, want Connection: close", softMaxConnections, err)
	}
	wait.Until(t, "the extra connection is closed", func() bool { return r.connections.Load() == softMaxConnections })

	// Idle connections use up the rest, and more. The server soon closes them; until then the next one waits.
	address := strings.TrimPrefix(r.url, "https://")
	for range maxConnections - softMaxConnections + 20 {
		idle, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = idle.Close() })
	}
	wait.Until(t, "the maximum number of connections is open", func() bool { return r.connections.Load() >= maxConnections })
	time.Sleep(100 * time.Millisecond) // the others would be accepted by now
	if open := r.connections.Load(); open > maxConnections {
		t.Errorf("%d connections, want at most %d", open, maxConnections)
	}
	response, body, err := send(t.Context(), r.client(t), r.url+ValidateServicesPath, bytes.NewReader(reviewCase.body))
	if err != nil || response.StatusCode != http.StatusOK || !reviewCase.verified(t, body).Allowed {
		t.Errorf("the next review got %v %s, %v", response, body, err)
	}
}

func TestLogTruncatesClientValues(t *testing.T) {
	long := strings.Repeat("é", 200*kibibyte)
	invalid := service(annotated("vicinity.dev/topology-keys", ""), func(s *corev1.Service) { s.Name = long })
	denied := apiRequest{operation: apiserver.Create, object: invalid}.review(t, ValidateServicesPath).body
	denied = edit(t, denied, func(_, request map[string]any) {
		request["uid"], request["namespace"], request["name"] = long, long, long
		request["userInfo"] = map[string]any{"username": long}
	})
	for message, body := range map[string][]byte{
		"denied":               denied,
		`"rejected a request"`: edit(t, denied, set("operation", long)),
		"allowed":              edit(t, denied, set("object", map[string]any{"metadata": map[string]any{"name": long}})),
	} {
		t.Run(message, func(t *testing.T) {
			var lines bytes.Buffer
			serve(t, withNamespace(rules.Settings{}, nil), noObserver{}, &lines, ValidateServicesPath, post(body))
			text := lines.String()
			if !strings.Contains(text, "msg="+message) || !strings.Contains(text, "é…") || len(text) > 4*kibibyte {
				t.Errorf("the log has %d bytes: %.200s", len(text), text)
			}
		})
	}
	t.Run("a panic", func(t *testing.T) {
		dependencies := withNamespace(rules.Settings{}, nil)
		dependencies.Settings = func() *rules.Settings { panic(long) }
		small := apiRequest{operation: apiserver.Create, object: service()}.review(t, ValidateServicesPath).body
		var lines bytes.Buffer
		serve(t, dependencies, noObserver{}, &lines, ValidateServicesPath, post(small))
		if !strings.Contains(lines.String(), "ééé") || strings.Count(lines.String(), "é") > maxLoggedError {
			t.Errorf("the log has %d bytes: %.200s", lines.Len(), lines.String())
		}
	})
}
