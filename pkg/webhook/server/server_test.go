package server

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	admissionv1 "k8s.io/api/admission/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	apiserver "k8s.io/apiserver/pkg/admission"
	webhookutil "k8s.io/apiserver/pkg/util/webhook"
	"k8s.io/client-go/rest"

	"github.com/vicinity-proxy/vicinity/pkg/policy"
	"github.com/vicinity-proxy/vicinity/pkg/testkit/reserve"
	"github.com/vicinity-proxy/vicinity/pkg/testkit/wait"
	"github.com/vicinity-proxy/vicinity/pkg/webhook/rules"
)

// testServer is a server with all paths, on loopback.
type testServer struct {
	*Server
	url      string
	pair     *tls.Certificate
	observer *recordingObserver
	log      *lockedBuffer
	stop     context.CancelFunc
	done     chan error // the result of Start
}

type lockedBuffer struct {
	mu sync.Mutex
	bytes.Buffer
}

func (b *lockedBuffer) Write(text []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.Buffer.Write(text)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.Buffer.String()
}

// start starts a server. Before that it calls change twice: with the options and no server, then with the server and no
// options. change may be nil.
func start(t testing.TB, dependencies Dependencies, limits Limits, change func(*Server, *Options)) *testServer {
	t.Helper()
	var listen net.ListenConfig
	listener, err := listen.Listen(t.Context(), "tcp", reserve.OnLoopback(t).String())
	if err != nil {
		t.Fatal(err)
	}
	pair := validCertificate(t)
	r := &testServer{
		url: "https://" + listener.Addr().String(), pair: pair, observer: &recordingObserver{}, log: &lockedBuffer{}, done: make(chan error, 1),
	}
	log := slog.New(slog.NewTextHandler(r.log, nil))
	options := Options{
		Listener: listener, Log: log, Handlers: Handlers(dependencies, limits, r.observer, log), Synced: func() error { return nil },
		Certificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return pair, nil },
	}
	if change != nil {
		change(nil, &options)
	}
	r.Server = New(options)
	if change != nil {
		change(r.Server, nil)
	}
	ctx, cancel := context.WithCancel(context.Background())
	r.stop = cancel
	go func() { r.done <- r.Start(ctx) }()
	t.Cleanup(cancel)
	wait.Until(t, "the server listens", func() bool { return r.listening.Load() })
	return r
}

// client returns a client with connections of its own.
func (s *testServer) client(t testing.TB) *http.Client {
	transport := &http.Transport{TLSClientConfig: clientTLSConfig(s.pair), MaxIdleConnsPerHost: 25}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport}
}

func send(ctx context.Context, client *http.Client, url string, body io.Reader) (*admissionResponse, []byte, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, url, body)
	if err != nil {
		return nil, nil, err
	}
	r.Header.Set("Content-Type", "application/json")
	response, err := client.Do(r)
	if err != nil {
		return nil, nil, err
	}
	result, err := readResponse(response)
	if err != nil {
		return nil, nil, err
	}
	return result, result.Body, nil
}

// admissionResponse is a response that has been read.
type admissionResponse struct {
	StatusCode int
	Close      bool
	Header     http.Header
	Body       []byte
}

// readResponse reads a response to its end, and closes it.
func readResponse(response *http.Response) (*admissionResponse, error) {
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		return nil, err
	}
	return &admissionResponse{response.StatusCode, response.Close, response.Header, body}, nil
}

func TestAPIServerClientParsesResponses(t *testing.T) {
	broken := withNamespace(rules.Settings{}, nil)
	broken.Namespace = func(string) rules.NamespaceDefaults { panic("broken") }
	r := start(t, broken, DefaultLimits(), nil)
	call := func(t *testing.T, path string, about apiRequest) (*admissionv1.AdmissionReview, error) {
		t.Helper()
		review := &admissionv1.AdmissionReview{}
		reviewCase := about.review(t, path)
		return review, apiServerClient(t, r, path).Post().Body(reviewCase.review).Do(t.Context()).Into(review)
	}
	t.Run("a denial", func(t *testing.T) {
		review, err := call(t, ValidateServicesPath,
			apiRequest{operation: apiserver.Create, object: service(annotated(policy.TopologyKeysAnnotation, ""))})
		if err != nil || review.Response == nil || review.Response.Allowed {
			t.Fatalf("got %+v, %v", review.Response, err)
		}
		if !strings.Contains(review.Response.Result.Message, "[SVC001]") {
			t.Errorf("the message is %q", review.Response.Result.Message)
		}
	})
	t.Run("a rejection has a reason", func(t *testing.T) {
		_, err := call(t, ValidateServicesPath, apiRequest{operation: apiserver.Delete, old: service()})
		if !apierrors.IsBadRequest(err) || !strings.Contains(err.Error(), `a review of the operation "DELETE"`) {
			t.Errorf("got %v", err)
		}
	})
	t.Run("a failure is an error", func(t *testing.T) {
		_, err := call(t, DefaultServicesPath, apiRequest{operation: apiserver.Create, object: service()})
		if !apierrors.IsInternalError(err) || !strings.Contains(err.Error(), "had an internal error") {
			t.Errorf("got %v", err)
		}
	})
}

// apiServerClient returns the client with which an API server calls webhooks.
func apiServerClient(t *testing.T, r *testServer, path string) *rest.RESTClient {
	t.Helper()
	clients, err := webhookutil.NewClientManager([]schema.GroupVersion{admissionv1.SchemeGroupVersion}, admissionv1.AddToScheme)
	if err != nil {
		t.Fatal(err)
	}
	resolver, err := webhookutil.NewDefaultAuthenticationInfoResolver("")
	if err != nil {
		t.Fatal(err)
	}
	clients.SetAuthenticationInfoResolver(resolver)
	client, err := clients.HookClient(webhookutil.ClientConfig{Name: "test", URL: r.url + path, CABundle: bundle(r.pair)})
	if err != nil {
		t.Fatal(err)
	}
	return client
}

func TestOnlyHTTP1(t *testing.T) {
	r := start(t, withNamespace(rules.Settings{}, nil), DefaultLimits(), nil)
	for _, offered := range [][]string{{"h2", "http/1.1"}, {"http/1.1"}, nil} {
		config := clientTLSConfig(r.pair)
		config.NextProtos = offered
		connection, err := (&tls.Dialer{Config: config}).DialContext(t.Context(), "tcp", strings.TrimPrefix(r.url, "https://"))
		if err != nil {
			t.Fatalf("%v: %v", offered, err)
		}
		if got := connection.(*tls.Conn).ConnectionState().NegotiatedProtocol; got == "h2" {
			t.Errorf("%v: %q was negotiated", offered, got)
		}
		_ = connection.Close()
	}
	config := clientTLSConfig(r.pair)
	config.NextProtos = []string{"h2"}
	if _, err := (&tls.Dialer{Config: config}).DialContext(t.Context(), "tcp", strings.TrimPrefix(r.url, "https://")); err == nil {
		t.Error("a client that only supports HTTP/2 is served")
	}
}

func TestOldTLSIsRejected(t *testing.T) {
	for name, c := range map[string]struct {
		least  uint16
		client uint16
		served bool
	}{
		"1.3":                        {0, tls.VersionTLS13, true},
		"1.2":                        {0, tls.VersionTLS12, false},
		"1.2 where it is allowed":    {tls.VersionTLS12, tls.VersionTLS12, true},
		"1.3 where 1.2 is allowed":   {tls.VersionTLS12, tls.VersionTLS13, true},
		"1.1 where it is configured": {tls.VersionTLS11, tls.VersionTLS11, false},
	} {
		t.Run(name, func(t *testing.T) {
			r := start(t, withNamespace(rules.Settings{}, nil), DefaultLimits(), func(_ *Server, options *Options) {
				if options != nil {
					options.MinTLSVersion = c.least
				}
			})
			config := clientTLSConfig(r.pair)
			config.MinVersion, config.MaxVersion = c.client, c.client
			connection, err := (&tls.Dialer{Config: config}).DialContext(t.Context(), "tcp", strings.TrimPrefix(r.url, "https://"))
			if err == nil {
				_ = connection.Close()
			}
			if (err == nil) != c.served {
				t.Errorf("served is %v (%v), want %v", err == nil, err, c.served)
			}
		})
	}
}

func TestTimeouts(t *testing.T) {
	server := New(Options{Log: slog.New(slog.DiscardHandler)}).http
	want := []time.Duration{10 * time.Second, 10 * time.Second, 10 * time.Second, 150 * time.Second}
	got := []time.Duration{server.ReadHeaderTimeout, server.ReadTimeout, server.WriteTimeout, server.IdleTimeout}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("timeouts (-want +got):\n%s", diff)
	}
	if idle := http.DefaultTransport.(*http.Transport).IdleConnTimeout; server.IdleTimeout <= idle {
		t.Errorf("idle timeout %s, want more than the %s of the API server", server.IdleTimeout, idle)
	}
}

// withShortTimeouts shortens the client timeouts of the server.
func withShortTimeouts(server *Server, _ *Options) {
	if server != nil {
		server.http.ReadHeaderTimeout, server.http.ReadTimeout = time.Second, 2*time.Second
	}
}

func TestSlowClientsTimeOut(t *testing.T) {
	r := start(t, withNamespace(rules.Settings{}, nil), DefaultLimits(), withShortTimeouts)
	address := strings.TrimPrefix(r.url, "https://")
	head := "POST " + ValidateServicesPath + " HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
	for name, c := range map[string]struct {
		encrypted bool
		begin     string
		want      string // the beginning of the response
	}{
		"in the handshake":   {false, "\x16\x03\x01\x02", ""},
		"in the header":      {true, head, ""},
		"before the body":    {true, head + "Content-Length: 1000\r\n\r\n", "HTTP/1.1 408 Request Timeout\r\n"},
		"in the body":        {true, head + "Content-Length: 1000\r\n\r\n{", "HTTP/1.1 408 Request Timeout\r\n"},
		"in a chunk":         {true, head + "Transfer-Encoding: chunked\r\n\r\n10\r\n{", "HTTP/1.1 408 Request Timeout\r\n"},
		"without any header": {true, "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var connection net.Conn
			var err error
			if c.encrypted {
				connection, err = (&tls.Dialer{Config: clientTLSConfig(r.pair)}).DialContext(t.Context(), "tcp", address)
			} else {
				connection, err = (&net.Dialer{}).DialContext(t.Context(), "tcp", address)
			}
			if err != nil {
				t.Fatal(err)
			}
			defer connection.Close()
			if _, err := io.WriteString(connection, c.begin); err != nil {
				t.Fatal(err)
			}
			if err := connection.SetReadDeadline(time.Now().Add(wait.Timeout)); err != nil {
				t.Fatal(err)
			}
			response, err := io.ReadAll(connection) // until the server closes
			if timeout, ok := errors.AsType[net.Error](err); ok && timeout.Timeout() {
				t.Fatalf("the connection is still open, with %q", response)
			}
			if !strings.HasPrefix(string(response), c.want) {
				t.Errorf("got %q, want %q", response, c.want)
			}
		})
	}
}

func TestTooLargeBodyIsRejected(t *testing.T) {
	r := start(t, withNamespace(rules.Settings{}, nil), DefaultLimits(), nil)
	for name, body := range map[string]io.Reader{
		"announced":     bytes.NewReader(make([]byte, 7<<20)),
		"not announced": io.LimitReader(zeros{}, 7<<20),
	} {
		t.Run(name, func(t *testing.T) {
			response, _, err := send(t.Context(), r.client(t), r.url+ValidateServicesPath, body)
			if err != nil {
				t.Fatal(err)
			}
			expectRejected(t, response, http.StatusRequestEntityTooLarge, "more than 6815744 bytes")
		})
	}
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { clear(p); return len(p), nil }

// blockingDependencies returns dependencies that block until the test opens them.
func blockingDependencies(t testing.TB) (dependencies Dependencies, open func()) {
	opened := make(chan struct{})
	dependencies = withNamespace(rules.Settings{}, nil)
	settings := dependencies.Settings
	dependencies.Settings = func() *rules.Settings { <-opened; return settings() }
	open = sync.OnceFunc(func() { close(opened) })
	t.Cleanup(open)
	return dependencies, open
}

func TestInFlightLimit(t *testing.T) {
	const limit, extra = 64, 7
	dependencies, open := blockingDependencies(t)
	r := start(t, dependencies, DefaultLimits(), nil)
	client, url := r.client(t), r.url+ValidateServicesPath
	reviewCase := apiRequest{operation: apiserver.Create, object: service()}.review(t, ValidateServicesPath)
	codes := make(chan int, limit)
	for range limit {
		go func() {
			response, _, err := send(context.Background(), client, url, bytes.NewReader(reviewCase.body))
			if err != nil {
				codes <- -1
				return
			}
			codes <- response.StatusCode
		}()
	}
	wait.Until(t, "64 reviews are in flight", func() bool { current, _ := r.observer.inFlightNow(); return current == limit })
	for range extra {
		response, _, err := send(t.Context(), client, url, bytes.NewReader(reviewCase.body))
		if err != nil {
			t.Fatal(err)
		}
		if response.Header.Get("Retry-After") != "1" {
			t.Errorf("Retry-After is %q", response.Header.Get("Retry-After"))
		}
		expectRejected(t, response, http.StatusServiceUnavailable, "64 reviews are in progress")
	}
	open()
	for range limit {
		if code := <-codes; code != http.StatusOK {
			t.Errorf("a review that was in flight got %d", code)
		}
	}
	if n := r.observer.count("rejected " + Busy); n != extra {
		t.Errorf("%d rejections were observed, want %d", n, extra)
	}
	wait.Until(t, "nothing is in flight", func() bool { current, limit := r.observer.inFlightNow(); return current == 0 && limit == 64 })
}

func TestAPIServerClientRetries(t *testing.T) {
	dependencies, open := blockingDependencies(t)
	limits := DefaultLimits()
	limits.InFlight = 1
	r := start(t, dependencies, limits, nil)
	reviewCase := apiRequest{operation: apiserver.Create, object: service()}.review(t, ValidateServicesPath)
	go func() {
		_, _, _ = send(context.Background(), r.client(t), r.url+ValidateServicesPath, bytes.NewReader(reviewCase.body))
	}()
	wait.Until(t, "a review is in flight", func() bool { current, _ := r.observer.inFlightNow(); return current == 1 })
	go func() {
		for r.observer.count("rejected "+Busy) == 0 {
			time.Sleep(time.Millisecond)
		}
		open()
	}()
	review := &admissionv1.AdmissionReview{}
	if err := apiServerClient(t, r, ValidateServicesPath).Post().Body(reviewCase.review).Do(t.Context()).Into(review); err != nil {
		t.Fatal(err)
	}
	if review.Response == nil || !review.Response.Allowed {
		t.Errorf("got %+v", review.Response)
	}
	if n := r.observer.count("rejected " + Busy); n != 1 {
		t.Errorf("%d rejections, want 1", n)
	}
}

func TestFailedHandshakeIsLogged(t *testing.T) {
	r := start(t, withNamespace(rules.Settings{}, nil), DefaultLimits(), nil)
	address := strings.TrimPrefix(r.url, "https://")
	probe, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	_ = probe.Close()
	if _, err := (&tls.Dialer{Config: clientTLSConfig(validCertificate(t))}).DialContext(t.Context(), "tcp", address); err == nil {
		t.Fatal("an untrusted certificate was accepted")
	}
	wait.Until(t, "the failure is logged", func() bool { return strings.Contains(r.log.String(), "bad certificate") })
	if strings.Contains(r.log.String(), "EOF") {
		t.Errorf("the probe is logged: %s", r.log)
	}
}

func TestNewCertificateIsServedAtOnce(t *testing.T) {
	var current atomic.Pointer[tls.Certificate]
	first, second := validCertificate(t), validCertificate(t)
	current.Store(first)
	r := start(t, withNamespace(rules.Settings{}, nil), DefaultLimits(), func(_ *Server, options *Options) {
		if options != nil {
			options.Certificate = func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return current.Load(), nil }
		}
	})
	for _, pair := range []*tls.Certificate{first, second} {
		current.Store(pair)
		connection, err := (&tls.Dialer{Config: clientTLSConfig(pair)}).DialContext(t.Context(), "tcp", strings.TrimPrefix(r.url, "https://"))
		if err != nil {
			t.Fatal(err)
		}
		_ = connection.Close()
	}
}

func TestUnknownPathIsNotFound(t *testing.T) {
	r := start(t, withNamespace(rules.Settings{}, nil), DefaultLimits(), nil)
	response, _, err := send(t.Context(), r.client(t), r.url+"/", strings.NewReader("{}"))
	if err != nil || response.StatusCode != http.StatusNotFound {
		t.Errorf("got %v, %v", response, err)
	}
}

func TestListenerErrorEndsStart(t *testing.T) {
	r := start(t, withNamespace(rules.Settings{}, nil), DefaultLimits(), nil)
	_ = r.options.Listener.Close()
	if err := <-r.done; !errors.Is(err, net.ErrClosed) {
		t.Errorf("got %v, want %v", err, net.ErrClosed)
	}
	if r.listening.Load() {
		t.Error("listening is still set")
	}
}

// readRawResponse reads one response from a connection.
func readRawResponse(t testing.TB, connection net.Conn) *admissionResponse {
	t.Helper()
	response, err := http.ReadResponse(bufio.NewReader(connection), nil)
	if err != nil {
		t.Fatal(err)
	}
	result, err := readResponse(response)
	if err != nil {
		t.Fatal(err)
	}
	return result
}
